"""Write the example chain that ships with the package: synthetic quotes, no market data.

Prices are those of a Heston model (QuantLib); spreads, ticks, noise, volumes and the few faulty
rows are drawn from a seed. The file has the layout of the exchange's delayed-quotes download, and
the same seed gives the same bytes.

    python tools/make_example_chain.py src/arbiter/data/spx_example.csv
"""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import QuantLib as ql
from scipy.special import ndtr

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.timing.sessions import settlement_time

SEED = 20261015
STAMP = "October 15, 2026 at 4:31 PM EDT"
AS_OF = dt.datetime(2026, 10, 15, 16, 15)  # the last quotes before that stamp
SPOT = 6842.37
CHANGE = -31.55
HESTON = {"v0": 0.0235, "kappa": 2.6, "theta": 0.0440, "sigma": 0.95, "rho": -0.74}

# Root and expiry. 2026-11-27 is a half day; Juneteenth of 2027 moves June's monthly to a Thursday.
LISTED = (
    "SPXW 2026-10-15, SPX 2026-10-16, SPXW 2026-10-16, SPXW 2026-10-19, SPXW 2026-10-21, "
    "SPXW 2026-10-23, SPXW 2026-10-30, SPXW 2026-11-06, SPXW 2026-11-13, SPX 2026-11-20, "
    "SPXW 2026-11-20, SPXW 2026-11-27, SPXW 2026-12-04, SPX 2026-12-18, SPXW 2026-12-18, "
    "SPXW 2026-12-31, SPX 2027-01-15, SPXW 2027-01-29, SPX 2027-02-19, SPX 2027-03-19, "
    "SPXW 2027-03-31, SPX 2027-04-16, SPX 2027-06-17, SPX 2027-09-17, SPX 2027-12-17, "
    "SPX 2028-06-16, SPX 2028-12-15"
)
HEADER = (
    "Expiration Date,Calls,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest,Strike,"
    "Puts,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest"
)


def rate(T: float) -> float:
    """Zero rate, continuously compounded."""
    return 0.0345 + 0.0035 * float(np.exp(-1.1 * T))


def forward(T: float) -> float:
    """Forward of the index, with a dividend yield of 1.2 %."""
    return SPOT * float(np.exp((rate(T) - 0.012) * T))


def strikes(days: int) -> Array:
    """Listed strikes: five points apart at the money, wider in the wings and at long maturities."""
    near = np.clip(0.009 * np.sqrt(days + 1.0), 0.02, 0.045) if days < 100 else 0.0
    wide = np.clip(0.05 * np.sqrt(days / 7.0 + 1.0), 0.08, 0.24)
    bands = [  # step, share of the spot down, share up
        (5.0 if days < 36 else 10.0, near, 0.7 * near),
        (25.0, wide if days < 500 else 0.10, 0.6 * wide if days < 500 else 0.10),
        (50.0, 1.6 * wide, wide),
        (100.0, 0.65, 1.4 * wide),
        (200.0, 0.82, 0.30 + 0.4 * wide + 0.25 * min(days / 365.0, 2.0)),
    ]
    found = [
        step * np.arange(np.ceil(SPOT * (1 - down) / step), np.floor(SPOT * (1 + up) / step) + 1)
        for step, down, up in bands
        if down > 0.0
    ]
    return np.unique(np.concatenate(found))


def heston(k: Array, T: float) -> Array:
    """Out-of-the-money prices in forward units.

    QuantLib counts time in days; ours is in minutes. A Heston model run for time T is one run for
    a year with all four rates of its variance multiplied by T.
    """
    today = ql.Date(2, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    process = ql.HestonProcess(
        flat,
        flat,
        ql.QuoteHandle(ql.SimpleQuote(1.0)),
        *(HESTON[name] * T for name in ("v0", "kappa", "theta", "sigma")),
        HESTON["rho"],
    )
    engine = ql.ExponentialFittingHestonEngine(ql.HestonModel(process))
    exercise = ql.EuropeanExercise(today + 365)
    prices = []
    for at in k:
        side = ql.Option.Call if at >= 0.0 else ql.Option.Put
        option = ql.VanillaOption(ql.PlainVanillaPayoff(side, float(np.exp(at))), exercise)
        option.setPricingEngine(engine)
        prices.append(option.NPV())
    return np.asarray(np.maximum(prices, 0.0))


@dataclass(frozen=True)
class Greeks:
    """What the file prints beside the quotes; zeros for options that have settled."""

    iv: Array
    call_delta: Array
    put_delta: Array
    gamma: Array

    @classmethod
    def of(cls, otm: Array, k: Array, T: float, F: float) -> Greeks:
        total = black.implied_total_volatility(otm, k).volatility
        known = np.isfinite(total) & (total > 0.0)
        total = np.where(known, total, 1.0)
        d1 = -k / total + 0.5 * total
        density = np.exp(-0.5 * d1**2) / np.sqrt(2.0 * np.pi)
        delta = np.where(known, ndtr(d1), k < 0.0)
        return cls(
            np.where(known, total / np.sqrt(T), 0.0),
            delta,
            delta - 1.0,
            np.where(known, density / (F * total), 0.0),
        )

    @classmethod
    def settled(cls, size: int) -> Greeks:
        return cls(*np.zeros((4, size)))


@dataclass(frozen=True)
class Quoted:
    """Bid and ask of the calls or the puts of one series."""

    bid: Array
    ask: Array

    @classmethod
    def around(cls, price: Array, half: Array, rng: np.random.Generator) -> Quoted:
        """A noisy quote with the price between bid and ask."""
        centre = price + half * (1.4 * rng.random(price.size) - 0.7)
        return cls(
            ticks(np.minimum(centre - half, price), up=False),
            ticks(np.maximum(centre + half, price + 0.01), up=True),
        )


def ticks(price: Array, up: bool) -> Array:
    """Rounded outwards to five cents below three dollars and to ten above."""
    step = np.where(price < 3.0, 0.05, 0.10)
    count = price / step
    whole = np.ceil(count - 1e-9) if up else np.floor(count + 1e-9)
    return np.asarray(np.round(np.maximum(whole * step, 0.0), 2))


def activity(z: Array, scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Volume and open interest: most of it near the money and just below."""
    level = scale * np.exp(-0.5 * ((z + 0.6) / 1.1) ** 2)
    interest = np.floor(level * 9.0 * rng.random(z.size) ** 2 + 60.0 * rng.random(z.size) ** 4)
    volume = np.floor(level * rng.random(z.size) ** 3)
    return volume, np.where(volume > 0.0, np.maximum(interest, 1.0), interest)


def text(value: float) -> str:
    """A number as the exchange writes it: no trailing zeros."""
    found = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if found == "-0" else found


def series(root: str, expiry: dt.date, rng: np.random.Generator) -> list[str]:
    """The lines of one series."""
    settles = settlement_time(expiry, "AM" if root == "SPX" else "PM")
    minutes = (settles - AS_OF).total_seconds() / 60.0
    settled = minutes <= 0.0
    T = max(minutes, 1.0) / 525_600
    K = strikes((expiry - AS_OF.date()).days)
    F, D = forward(T), float(np.exp(-rate(T) * T))
    k = np.log(K / F)
    otm = np.zeros_like(k) if settled else heston(k, T)
    greeks = Greeks.settled(k.size) if settled else Greeks.of(otm, k, T, F)
    price = D * F * otm
    spread = 0.03 + 0.006 * (1.0 + T) * price  # half of it
    scale = 2400.0 / (1.0 + 6.0 * T) * (1.0 if root == "SPXW" else 1.6)
    quotes, cells = [], []
    for delta, inside in ((greeks.call_delta, k < 0.0), (greeks.put_delta, k >= 0.0)):
        fair = price + np.where(inside, D * np.abs(F - K), 0.0)
        half = spread + np.where(inside, 0.9 + 1.5 * T + 8.0 * settled, 0.0)
        quotes.append(Quoted.around(fair, half, rng))
        volume, interest = activity(k / max(0.15 * np.sqrt(T), 0.005), scale, rng)
        volume, interest = (np.where(inside, np.floor(0.2 * x), x) for x in (volume, interest))
        last = np.round(np.maximum(fair + half * (rng.random(K.size) - 0.5), 0.05), 2)
        net = np.round(delta * CHANGE * (0.9 + 0.2 * rng.random(K.size)), 2)
        cells.append(
            (
                (np.where(interest > 0.0, last, 0.0), np.where(volume > 0.0, net, 0.0)),
                (volume, greeks.iv, delta, greeks.gamma, interest),
            )
        )
    spoil(root, expiry, K, *quotes)
    rows = [
        [[text(value) for value in row] for row in np.column_stack([*a, q.bid, q.ask, *b])]
        for q, (a, b) in zip(quotes, cells, strict=True)
    ]
    day, stem = expiry.strftime("%a %b %d %Y"), f"{root}{expiry:%y%m%d}"
    codes = [f"{round(1000.0 * at):08d}" for at in K]
    return [
        ",".join([day, f"{stem}C{code}", *call, f"{at:.2f}", f"{stem}P{code}", *put])
        for at, code, call, put in zip(K, codes, rows[0], rows[1], strict=True)
    ]


def spoil(root: str, expiry: dt.date, K: Array, call: Quoted, put: Quoted) -> None:
    """The faults that real files have: crossed, without an ask, without a quote at all."""
    if (root, expiry) == ("SPX", dt.date(2027, 2, 19)):
        for side, at in ((put, 6000.0), (call, 7200.0), (call, 6300.0)):
            i = int(np.abs(K - at).argmin())
            side.bid[i], side.ask[i] = side.ask[i], side.bid[i]
    if expiry == dt.date(2028, 12, 15):
        call.ask[K < 0.35 * SPOT] = 0.0
        call.bid[-3:] = call.ask[-3:] = 0.0
        put.bid[-3:] = put.ask[-3:] = 0.0


def chain(seed: int = SEED) -> str:
    """The whole file."""
    rng = np.random.default_rng(seed)
    lines = [
        "",
        f"Standard & Poors 500 Index (synthetic),Last: {SPOT},Change:  {CHANGE}",
        f'"Date: {STAMP}",Bid: {SPOT - 19.2:.2f},Ask: {SPOT + 23.9:.2f},Size: 1*1,Volume: 0',
        HEADER,
    ]
    for entry in LISTED.split(", "):
        root, day = entry.split()
        lines += series(root, dt.date.fromisoformat(day), rng)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(chain(), encoding="utf-8", newline="\n")
