"""`arbiter fit --vix` and `arbiter joint`: two markets in, one surface and a verdict out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app
from arbiter.conventions import Array
from arbiter.data import example_chain_path as example_path

AS_OF = np.datetime64("2026-01-02")
DATE, DAYS = "2026-02-18", 47  # a VIX date, 30 days before the SPX expiry of 2026-03-20


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def volatilities(days: int, k: Array, iv: Array, half: float, forward: float) -> dict[str, Any]:
    count = k.size
    expiry = str(AS_OF + np.timedelta64(days, "D")).replace("-", "")
    return {
        "Expiry": [int(expiry)] * count,
        "Texp": [days / 365.0] * count,
        "Strike": (forward * np.exp(k)).tolist(),
        "Bid": (iv - half).tolist(),
        "Ask": (iv + half).tolist(),
        "Fwd": [forward] * count,
    }


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Index and VIX of one surface, in files."""
    folder, surface = tmp_path_factory.mktemp("market"), ab.example()
    k = np.linspace(-0.2, 0.12, 13)
    parts = [
        pl.DataFrame(volatilities(days, k, surface.iv(k, days / 365.0), 0.001, 6000.0))
        for days in (30, DAYS, 60, DAYS + 30, 120)
    ]
    T = DAYS / 365.0
    shape = ab.VixSlices.of([-3.0, 0.0, 3.0], [T], [[0.25, 0.3, 0.4]])
    known = surface.with_vix(shape)
    future = float(known.vix_future(T))
    x = np.linspace(-0.3, 0.7, 11)
    vix = volatilities(DAYS, x, known.vix_iv(future * np.exp(x), T), 0.01, future)
    tables = {"spx": pl.concat(parts), "vix": pl.DataFrame(vix)}
    tables["futures"] = pl.DataFrame({"expiry": [DATE], "settle": [round(future, 2)]})
    tables["history"] = pl.DataFrame({"date": ["2020-01-02"], "VX1": [14.0]})
    for name, table in tables.items():
        table.write_csv(folder / f"{name}.csv")
    return {name: folder / f"{name}.csv" for name in tables}


@pytest.fixture(scope="module")
def fitted(
    market: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("joint")
    files = ("--vix", market["vix"], "--vix-futures", market["futures"])
    return out, run("fit", market["spx"], *files, "--out", out, "--json")


def test_both_markets_are_fitted_and_the_coupling_holds(fitted: tuple[Path, Result]) -> None:
    out, result = fitted
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found == json.loads((out / "fit.json").read_text())
    assert found["layout"] == "volatilities"
    vix = found["vix_market"]
    assert (vix["source"], vix["futures_source"]) == ("vix.csv", "futures.csv")
    assert vix["quotes"] == 11
    assert vix["inside_bid_ask"] == 1.0
    assert vix["largest_second_moment_error"] < 1e-12
    assert vix["largest_future_error"] < 0.05
    (date,) = vix["dates"]
    assert date["date"] == DATE
    assert date["fitted_future"] < date["root_forward_variance"]
    assert abs(date["residual"]) < 1e-10
    assert abs(date["gap"]) > 1e-6  # two free fits never agree to the last digit


def test_numbers_are_those_of_the_library(
    fitted: tuple[Path, Result], market: dict[str, Path]
) -> None:
    out, result = fitted
    (date,) = json.loads(result.stdout)["vix_market"]["dates"]
    surface, T = ab.Surface.load(out / "surface.npz"), DAYS / 365.0
    assert float(surface.vvix(T)) == pytest.approx(date["vvix"], rel=1e-12)
    spx, vix = (ab.read_volatilities(market[name]) for name in ("spx", "vix"))
    futures = ab.FuturesCurve.of([T], pl.read_csv(market["futures"])["settle"])
    apart = ab.fit_vix(vix, futures).against(ab.fit(spx))
    assert date["gap"] == pytest.approx(apart["gap"][0], abs=1e-9)
    joint = ab.fit(spx, vix_quotes=vix, vix_futures=futures)
    assert date["fitted_future"] == pytest.approx(float(joint.vix_future(T)), abs=1e-9)


def test_exclusions_of_the_vix_have_a_file(fitted: tuple[Path, Result]) -> None:
    assert (fitted[0] / "vix_exclusions.csv").is_file()


def test_words_name_both_markets(market: dict[str, Path], tmp_path: Path) -> None:
    result = run("fit", market["spx"], "--vix", market["vix"], "--no-report", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    for text in ("VIX market", "11 options on one date", "E[VIX²] = FV", DATE):
        assert text in result.stdout


def test_futures_alone_are_enough(market: dict[str, Path], tmp_path: Path) -> None:
    files = ("--vix-futures", market["futures"], "--no-report", "--out", tmp_path)
    result = run("fit", market["spx"], *files, "--json")
    assert result.exit_code == 0, result.stderr
    vix = json.loads(result.stdout)["vix_market"]
    assert vix["quotes"] == 0
    assert vix["inside_bid_ask"] is None
    assert vix["dates"][0]["gap"] is None
    assert vix["largest_future_error"] < 0.05


def test_two_components_have_a_vix_side(market: dict[str, Path], tmp_path: Path) -> None:
    files = ("--vix", market["vix"], "--components", 2, "--out", tmp_path)
    result = run("fit", market["spx"], *files, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["vix_market"]["largest_second_moment_error"] < 1e-12
    assert len(ab.Surface.load(tmp_path / "surface.npz").slopes) == 2
    result = run("joint", tmp_path / "surface.npz", "--resolution", 2e-3, "--json")
    assert json.loads(result.stdout)[0]["verdict"] == "feasible"


@pytest.mark.parametrize(("method", "off"), [("operator", 1.0), ("both", 0.05)])
def test_the_operator_has_a_vix_side(
    method: str, off: float, market: dict[str, Path], tmp_path: Path
) -> None:
    """By itself at the level of its own forward variance; refined, both markets together."""
    files = ("--vix", market["vix"], "--vix-futures", market["futures"], "--method", method)
    result = run("fit", market["spx"], *files, "--no-report", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    vix = printed["vix_market"]
    assert vix["quotes"] == 11
    assert vix["largest_second_moment_error"] < 1e-12
    assert vix["largest_future_error"] < off
    # a joint fit takes the operator, which has seen the same quotes, for a prior
    narrow = any("standard errors are too small" in note for note in printed["notes"])
    assert narrow == (method == "both")
    surface = ab.Surface.load(tmp_path / "surface.npz")
    assert surface.vix_slices is not None
    assert surface.certificate().passed


def test_without_the_vix_nothing_is_said_of_it(market: dict[str, Path], tmp_path: Path) -> None:
    result = run("fit", market["spx"], "--no-report", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["vix_market"] is None
    assert not (tmp_path / "vix_exclusions.csv").exists()
    refused = run("joint", tmp_path / "surface.npz")
    assert refused.exit_code == 2
    assert "no VIX side" in refused.stderr
    assert "--vix" in refused.stderr


@pytest.mark.parametrize(
    ("index", "arguments", "words"),
    [
        ("vix", ("--vix", "spx"), ("spx.csv", "forward of 6000")),
        ("spx", ("--vix", "futures"), ("futures.csv",)),
        ("spx", ("--vix-futures", "vix"), ("vix.csv", "VIX futures are index points")),
        ("spx", ("--vix-futures", "history"), ("history.csv", "2026-01-02")),
        ("spx", ("--vix", "spx"), ("--vix", "own")),
    ],
)
def test_wrong_files_and_options_are_refused_by_name(
    index: str,
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    market: dict[str, Path],
    tmp_path: Path,
) -> None:
    given = [market.get(argument, argument) for argument in arguments]
    result = run("fit", market[index], *given, "--out", tmp_path / "out")
    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "out").exists()


def test_markets_of_two_moments_and_folders_are_refused(
    market: dict[str, Path], tmp_path: Path
) -> None:
    apart = run("fit", example_path(), "--vix", market["vix"], "--out", tmp_path / "out")
    assert apart.exit_code == 2
    assert "one moment" in apart.stderr
    folder = run("fit", market["spx"].parent, "--vix", market["vix"], "--out", tmp_path / "out")
    assert folder.exit_code == 2
    assert "folder" in folder.stderr
    missing = run("fit", market["spx"], "--vix", tmp_path / "no.csv", "--out", tmp_path / "out")
    assert missing.exit_code == 2
    assert "not a file" in missing.stderr


def test_a_law_is_found_for_the_joint_surface(fitted: tuple[Path, Result]) -> None:
    surface = fitted[0] / "surface.npz"
    result = run("joint", surface, "--resolution", 2e-3, "--json")
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)
    assert found["date"] == DATE
    assert found["verdict"] == "feasible"
    assert found["bound"] <= 2e-3
    words = run("joint", surface, "--T", DATE, "--resolution", 2e-3)
    assert words.exit_code == 0
    assert "joint law" in words.stdout


def test_too_wide_a_vix_is_an_arbitrage_with_its_legs(tmp_path: Path) -> None:
    T, knots = np.array([0.05, 0.1, 0.2, 0.4]), [-2.0, 0.0, 2.0]
    index = ab.Surface.from_slopes(knots, T, np.sqrt(T)[:, None] * [0.28, 0.2, 0.15])
    wide = index.with_vix(ab.VixSlices.of(knots, [0.1], [[1.5, 1.5, 1.5]]))
    wide.save(tmp_path / "wide.npz")
    result = run("joint", tmp_path / "wide.npz", "--resolution", 2e-3, "--json")
    assert result.exit_code == 1, result.stderr
    (found,) = json.loads(result.stdout)
    assert found["verdict"] == "arbitrage"
    assert 0.0 < found["violation"] <= found["bound"]
    assert {leg["market"] for leg in found["portfolio"]} >= {"VIX"}
    assert "never loses" in found["sentence"]


@pytest.mark.parametrize("date", ["soon", "-1", "2056-01-01"])
def test_dates_that_cannot_be_judged_are_refused(date: str, fitted: tuple[Path, Result]) -> None:
    result = run("joint", fitted[0] / "surface.npz", "--T", date)
    assert result.exit_code == 2
    assert date in result.stderr


def test_chains_of_the_exchange_and_quoted_futures(tmp_path: Path) -> None:
    made = run("simulate", "--out", tmp_path, "--days", 1, "--listing", "sparse", "--chains", 1)
    assert made.exit_code == 0, made.stderr
    spx, vix = (next((tmp_path / "chains").glob(f"{name}_*.csv")) for name in ("spx", "vix"))
    futures = tmp_path / "futures-00000.parquet"
    files = ("--vix", vix, "--vix-futures", futures, "--no-report", "--out", tmp_path / "out")
    result = run("fit", spx, *files, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["vix_market"]
    exact = pl.read_parquet(futures)["price"].to_numpy()
    fitted = np.array([date["fitted_future"] for date in found["dates"]])
    assert fitted == pytest.approx(exact, abs=0.1)  # the market's own, noise apart
    assert found["inside_bid_ask"] > 0.97
    swapped = run("fit", vix, "--vix", spx, "--out", tmp_path / "no")
    assert swapped.exit_code == 2
    assert f"{vix.name} has options on the VIX" in swapped.stderr


def test_the_joint_day(data_dir: Path, tmp_path: Path) -> None:
    spx, vix = (data_dir / "joint" / f"{name}_implied_vol_20230215.csv" for name in ("spx", "vix"))
    result = run("fit", spx, "--vix", vix, "--no-report", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["inside_bid_ask"] >= 0.99
    assert found["vix_market"]["inside_bid_ask"] >= 0.97
    assert found["vix_market"]["largest_future_error"] <= 0.05
    assert found["vix_market"]["largest_second_moment_error"] < 1e-12
