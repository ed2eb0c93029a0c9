(() => {
  "use strict";
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const smiles = report.smiles;
  const BLUE = "#0072b2", OUT = "#d55e00", INK = "#1c2126", GREY = "#66707a", BAR = "#8b96a1";
  const config = {
    displaylogo: false, responsive: true, typesetMath: false,
    // plotly offers to upload a chart by default: nothing leaves this page
    showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "toggleSpikelines"],
  };
  const has3d = (() => {
    try { return !!document.createElement("canvas").getContext("webgl"); } catch { return false; }
  })();
  document.documentElement.classList.add("script");

  const base = report.figures["total-variance"].layout;
  const axis = (more) => Object.assign({}, base.xaxis, { zeroline: false, range: undefined }, more);
  const title = (text) => ({ text, standoff: 8, font: { size: 12, color: GREY } });
  // plotly reads tags and entities in text: these are letters
  const letters = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // A residual beyond the frame is drawn on its edge; hovering gives the number.
  const FRAME = 2.6;
  const framed = (r) => Math.max(-FRAME, Math.min(FRAME, r));
  const band = (xref, yref) => [{
    type: "rect", xref, yref, x0: 0, x1: 1, y0: -1, y1: 1, layer: "below",
    fillcolor: "rgba(0,114,178,0.08)", line: { width: 0 },
  }];

  const logMoneyness = (s) => s.strike.map((K) => Math.log(K / s.forward));
  const places = {
    strike: {
      text: "strike", format: ",.6~f",
      quotes: (s) => s.strike, curve: (s) => s.curve.k.map((k) => s.forward * Math.exp(k)),
    },
    k: { text: "log-moneyness k", format: ".4f", quotes: logMoneyness, curve: (s) => s.curve.k },
    deviations: {
      text: "moneyness k/(σ√T), σ at the money", format: ".2f",
      quotes: (s) => logMoneyness(s).map((k) => k / (s.atm * Math.sqrt(s.T))),
      curve: (s) => s.curve.k.map((k) => k / (s.atm * Math.sqrt(s.T))),
    },
  };

  function smileFigure(s, along) {
    const place = places[along], at = place.quotes(s), x = place.curve(s), c = s.curve;
    const piece = (a, b, line) => ({
      type: "scatter", mode: "lines", x: x.slice(a, b), y: c.iv.slice(a, b), line,
      hoverinfo: "skip",
    });
    const beyond = { color: BLUE, width: 1.6, dash: "dot" };
    const traces = [];
    if (c.error) {
      const ends = [1, -1].map((sign) => c.iv.map((v, i) => v === null || c.error[i] === null ? null : v + 2 * sign * c.error[i]));
      traces.push({ type: "scatter", mode: "lines", x, y: ends[0], line: { width: 0 }, hoverinfo: "skip" });
      traces.push({ type: "scatter", mode: "lines", x, y: ends[1], line: { width: 0 }, fill: "tonexty", fillcolor: "rgba(0,114,178,0.16)", hoverinfo: "skip" });
    }
    for (const inside of [1, 0]) {
      const some = s.inside.map((v, i) => i).filter((i) => s.inside[i] === inside);
      if (!some.length) continue;
      const pick = (a) => some.map((i) => a[i]);
      const colour = inside ? BAR : OUT;
      const mid = pick(s.mid), ask = pick(s.ask), bid = pick(s.bid), own = pick(at);
      const custom = some.map((i) => [s.bid[i], s.ask[i], s.fit[i], s.residual[i], s.strike[i]]);
      const hover = `<b>%{customdata[4]:,.6~f}</b> ${s.label_safe}<br>bid %{customdata[0]:.2f}, ask %{customdata[1]:.2f}<br>fit %{customdata[2]:.2f} %<br>residual %{customdata[3]:.2f} half-spreads<extra></extra>`;
      traces.push({
        type: "scatter", mode: "markers", x: own, y: mid, customdata: custom, hovertemplate: hover,
        marker: { size: 3, color: colour },
        error_y: {
          symmetric: false, array: mid.map((v, j) => ask[j] - v),
          arrayminus: mid.map((v, j) => v - bid[j]), color: colour, thickness: 1.3, width: 0,
        },
      });
      traces.push({
        type: "scatter", mode: "markers", x: own, y: pick(s.residual).map(framed), yaxis: "y2",
        customdata: custom, hovertemplate: hover, marker: { size: 4, color: inside ? BLUE : OUT },
      });
    }
    traces.push(piece(c.from, c.to, { color: BLUE, width: 2 }));
    traces.push(piece(0, c.from + 1, beyond), piece(c.to - 1, c.iv.length, beyond));
    const layout = Object.assign({}, base, {
      height: 520, margin: { l: 58, r: 12, t: 26, b: 46 },
      xaxis: axis({ title: title(place.text), tickformat: along === "strike" ? ",~f" : "", range: [x[0], x[x.length - 1]], anchor: "y2" }),
      yaxis: axis({ title: title("implied volatility, %"), domain: [0.3, 1], range: s.range, type: "linear" }),
      yaxis2: axis({ title: title("half-spreads"), domain: [0, 0.22], range: [-FRAME - 0.2, FRAME + 0.2], tickvals: [-2, -1, 0, 1, 2] }),
      shapes: band("x domain", "y2"),
    });
    return { data: traces, layout };
  }

  function residualFigure() {
    const trace = (inside) => {
      const t = { x: [], y: [], customdata: [], color: [] };
      smiles.forEach((s) => s.strike.forEach((K, i) => {
        if (s.inside[i] !== inside) return;
        t.x.push(Math.log(K / s.forward) / (0.01 * s.mid[i] * Math.sqrt(s.T)));
        t.y.push(framed(s.residual[i]));
        t.customdata.push([s.label_safe, K, s.residual[i]]);
        t.color.push(inside ? s.colour : OUT);
      }));
      return {
        type: has3d ? "scattergl" : "scatter", mode: "markers", x: t.x, y: t.y,
        customdata: t.customdata,
        marker: { size: inside ? 3 : 6, color: t.color, opacity: inside ? 0.55 : 1, symbol: inside ? "circle" : "diamond" },
        hovertemplate: "<b>%{customdata[0]}</b> %{customdata[1]:,.6~f}<br>residual %{customdata[2]:.2f} half-spreads<extra></extra>",
      };
    };
    const scale = report.figures["total-variance"].data.at(-1);
    const layout = Object.assign({}, base, {
      height: 380,
      xaxis: axis({ title: title("moneyness, standard deviations"), zeroline: true }),
      yaxis: axis({ title: title("residual, half-spreads"), range: [-FRAME - 0.15, FRAME + 0.15], tickvals: [-2, -1, 0, 1, 2], type: "linear" }),
      shapes: band("x domain", "y"),
    });
    return { data: [trace(1), trace(0), scale], layout, raster: has3d };
  }

  const merged = (a, b) => {
    const all = Object.assign({}, a);
    for (const [key, value] of Object.entries(b || {})) {
      all[key] = value && typeof value === "object" && !Array.isArray(value) ? merged(a[key], value) : value;
    }
    return all;
  };

  function specification(name, view) {
    const figure = name === "residuals" ? residualFigure() : report.figures[name];
    const chosen = (figure.views || [])[view] || {};
    return {
      data: chosen.data || figure.data,
      // plotly writes into the layout it is given: one view must not leave traces in another
      layout: structuredClone(merged(figure.layout, chosen.layout)),
      raster: figure.raster || name === "surface",
    };
  }

  // Paper gets a picture of its own, made ahead: printing does not wait for scripts.
  async function picture(figure, spec) {
    const wide = !figure.parentElement.classList.contains("pair");
    const size = { width: wide ? 1000 : 560, height: spec.layout.height };
    const format = spec.raster ? { format: "png", scale: 2 } : { format: "svg" };
    const source = await Plotly.toImage({ data: spec.data, layout: spec.layout }, Object.assign(size, format));
    let image = figure.querySelector(".on-paper");
    if (!image) {
      image = document.createElement("img");
      image.className = "on-paper";
      image.alt = "";
      figure.append(image);
    }
    image.src = source;
    figure.classList.add("ready");
  }

  const paper = [];
  async function draw(figure) {
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "0";
    const name = figure.dataset.figure, live = figure.querySelector(".live");
    if (name === "surface" && !has3d) {
      live.innerHTML = '<p class="needs">The view in three dimensions needs WebGL, which this browser does not offer. The contours show the same numbers.</p>';
      return;
    }
    const views = (report.figures[name] || {}).views || [];
    if (views.length) {
      const choice = document.createElement("span");
      choice.className = "choice";
      views.forEach((view, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = view.label;
        button.classList.toggle("on", i === 0);
        button.addEventListener("click", () => {
          choice.querySelectorAll("button").forEach((b) => b.classList.toggle("on", b === button));
          const spec = specification(name, i);
          Plotly.react(live, spec.data, spec.layout, config);
          picture(figure, spec);
        });
        choice.append(button);
      });
      figure.prepend(choice);
    }
    const spec = specification(name, 0);
    await Plotly.newPlot(live, spec.data, spec.layout, config);
    paper.push(() => picture(figure, spec));
  }

  let current = 0, along = report.currency ? "strike" : "k";
  const explorer = document.getElementById("explorer");
  const select = document.getElementById("expiry"), slide = document.getElementById("slide");
  smiles.forEach((s) => { s.label_safe = letters(s.label).replace(/%/g, "&#37;"); });
  function show(i) {
    current = Math.max(0, Math.min(smiles.length - 1, i));
    select.value = slide.value = String(current);
    document.querySelectorAll(".smile[data-expiry]").forEach((f, j) => f.classList.toggle("on", j === current));
    const { data, layout } = smileFigure(smiles[current], along);
    return Plotly.react(explorer, data, layout, config);
  }
  select.addEventListener("change", () => show(+select.value));
  slide.addEventListener("input", () => show(+slide.value));
  document.getElementById("earlier").addEventListener("click", () => show(current - 1));
  document.getElementById("later").addEventListener("click", () => show(current + 1));
  document.querySelectorAll("#axis button").forEach((button) => button.addEventListener("click", () => {
    along = button.value;
    document.querySelectorAll("#axis button").forEach((b) => b.classList.toggle("on", b === button));
    show(current);
  }));
  document.querySelectorAll(".smile[data-expiry]").forEach((figure) => figure.addEventListener("click", () => {
    show(+figure.dataset.expiry);
    document.getElementById("smiles").scrollIntoView();
  }));

  const figures = [...document.querySelectorAll("figure.plot")];
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }), { rootMargin: "400px" });
  const idle = () => new Promise((resolve) => {
    if (window.requestIdleCallback) requestIdleCallback(resolve, { timeout: 100 });
    else setTimeout(resolve, 20);
  });

  (async () => {
    // the expiry nearest to thirty days is the one most people look at first
    const nearest = smiles.reduce((best, s, i) => Math.abs(s.days - 30) < Math.abs(smiles[best].days - 30) ? i : best, 0);
    await show(nearest);
    figures.forEach((figure) => seen.observe(figure));
    for (const figure of figures) { await idle(); await draw(figure); }
    for (const make of paper) { await idle(); await make(); }
  })();
})();
