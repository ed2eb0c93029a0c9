"""`arbiter simulate`: the dataset it writes, how it goes on when interrupted, what it refuses."""

import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app
from arbiter.markets import dataset as datasets
from arbiter.markets.dataset import MANIFEST, Dataset, Plan, write_dataset
from arbiter.markets.dataset_picture import pick_three_days
from arbiter.markets.frictions import Frictions
from arbiter.markets.listing import Listing
from arbiter.markets.snapshots import Venue
from arbiter.markets.vix_listing import VolatilityVenue

FEW = Listing(
    daily=0,
    weekly=8,
    month_end=0,
    monthly=70,
    quarterly=0,
    deviations=(3.0, 2.0),
    steps=(50.0, 100.0),
    borders=(1.0,),
    finest=0.2,
)
PLAN = Plan(
    days=5,
    seed=4,
    preset="jumpy",
    block=2,
    steps_per_day=2,
    venue=Venue(FEW, frictions=Frictions(missing=0.1), volatility=VolatilityVenue(monthly=1)),
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *(str(argument) for argument in arguments)])


def contents(folder: Path) -> dict[str, str]:
    """A fingerprint of every file."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market")
    write_dataset(PLAN, folder)
    return folder


def test_dataset_has_a_part_per_block_and_a_manifest(written: Path) -> None:
    names = {f"{kind}-0000{part}.parquet" for kind in PLAN.table_kinds for part in range(3)}
    assert set(contents(written)) == {*names, MANIFEST}
    manifest = json.loads((written / MANIFEST).read_text())
    assert manifest["files"] == {
        name: mark for name, mark in contents(written).items() if name != MANIFEST
    }


def test_configuration_and_seed_are_inside_every_part(written: Path) -> None:
    for path in written.glob("*.parquet"):
        config = json.loads(pl.read_parquet_metadata(path)["arbiter"])
        assert config == PLAN.config()
        assert config["seed"] == 4
        assert config["parameters"]["jumps"]["intensity"] > 0.0


def test_schema_is_the_documented_one(written: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    for kind in PLAN.table_kinds:
        for name in pl.read_parquet_schema(written / f"{kind}-00000.parquet"):
            assert f"`{name}`" in page, f"{kind}: {name} is not in docs/simulate.md"


def test_what_is_read_is_what_was_made(written: Path) -> None:
    dataset = Dataset(written)
    assert len(dataset) == 5
    for number, snapshot in zip((2, 4), PLAN.build_market().days([2, 4]), strict=True):
        assert snapshot.volatility is not None
        for made, read in (
            (snapshot.volatility.quotes, dataset.quotes(number, "vix")),
            (snapshot.quotes, dataset.quotes(number)),
        ):
            for name in ("maturities", "forwards", "discounts", "expiry", "k", "bid", "ask"):
                assert (getattr(made, name) == getattr(read, name)).all(), name
            assert (made.labels, made.as_of) == (read.labels, read.as_of)
            assert made.exclusions.equals(read.exclusions)
            assert made.info == read.info
        market, state = dataset.oracle(number)
        assert market == snapshot.market
        assert (state == snapshot.state).all()
        table = dataset.table(number).filter(pl.col("reason").is_null())
        assert (snapshot.exact.price == dataset.table(number)["price"].to_numpy()).all()
        exact = market.iv(read.k, read.T, state)
        assert np.abs(table["iv"].to_numpy() - exact).max() < 1e-6
        elsewhere, other = dataset.oracle(0)
        assert np.abs(table["iv"].to_numpy() - elsewhere.iv(read.k, read.T, other)).max() > 1e-4


def test_same_plan_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_dataset(PLAN, tmp_path)
    assert contents(tmp_path) == contents(written)


def test_interrupted_run_goes_on_and_ends_with_the_same_bytes(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def stopped(path: Path, table: pl.DataFrame, note: dict[str, str]) -> str:
        if len(calls) == 6:  # in the middle of the second part
            raise KeyboardInterrupt
        calls.append(path)
        return whole_file(path, table, note)

    whole_file = datasets.write_table
    monkeypatch.setattr(datasets, "write_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_dataset(PLAN, tmp_path)
    assert MANIFEST not in contents(tmp_path)
    with pytest.raises(ValueError, match="run the same command again"):
        len(Dataset(tmp_path))
    monkeypatch.setattr(datasets, "write_table", whole_file)
    kept = (tmp_path / "quotes-00000.parquet").stat().st_ino
    done: list[int] = []
    write_dataset(PLAN, tmp_path, done.append)
    assert (tmp_path / "quotes-00000.parquet").stat().st_ino == kept  # not made again
    assert done == [2, 4, 5]
    assert contents(tmp_path) == contents(written)


def test_folder_of_another_dataset_is_refused_and_left_alone(written: Path) -> None:
    before = contents(written)
    other = Plan(days=5, seed=5, preset="jumpy", block=2, steps_per_day=2, venue=PLAN.venue)
    with pytest.raises(ValueError, match="seed 4 there, 5 now"):
        write_dataset(other, written)
    assert contents(written) == before


def test_spoilt_part_is_named(written: Path, tmp_path: Path) -> None:
    (tmp_path / "quotes-00000.parquet").write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"quotes-00000\.parquet is not a Parquet file"):
        write_dataset(PLAN, tmp_path)


def spoil(path: Path) -> None:
    """Change some bytes in the middle; the file can still be read."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    path.write_bytes(content)


@pytest.mark.parametrize("manifest", [True, False])
def test_damaged_part_is_refused_by_a_reader_and_made_again(
    written: Path, tmp_path: Path, manifest: bool
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(written, folder)
    name = "quotes-00001.parquet"
    spoil(folder / name)
    with pytest.raises(ValueError, match=f"{name} is not as it was written"):
        Dataset(folder).table(2)
    Dataset(folder).table(0)  # the other parts are sound
    if not manifest:  # an interrupted run: checksums in the table of days are enough
        (folder / MANIFEST).unlink()
    write_dataset(PLAN, folder)
    assert contents(folder) == contents(written)


def test_folder_may_be_named_by_text_and_numbers_may_be_numpys(tmp_path: Path) -> None:
    plan = Plan(days=np.int64(1), seed=np.int64(1), venue=Venue(FEW))  # type: ignore[arg-type]
    write_dataset(plan, str(tmp_path))
    assert len(Dataset(str(tmp_path))) == 1  # type: ignore[arg-type]
    assert Dataset(tmp_path).days.height == 1


def test_disk_that_is_full_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> Path:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(datasets, "write_whole", full)
    result = run("--out", tmp_path, "--days", 1, "--listing", "sparse", "--no-vix")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert "quotes-00000.parquet" in result.stderr


def test_reader_mistakes_are_named(written: Path) -> None:
    dataset = Dataset(written)
    with pytest.raises(ValueError, match="the dataset has 5 days"):
        dataset.table(5)
    with pytest.raises(ValueError, match="no strikes"):
        dataset.quotes(0, "futures")


def test_datasets_of_the_format_before_are_read(written: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(written, tmp_path / "older")
    manifest = json.loads((written / MANIFEST).read_text())
    assert manifest["config"]["format"] == "arbiter-market-3"
    for number in (2, 1):
        manifest["config"]["format"] = f"arbiter-market-{number}"
        (folder / MANIFEST).write_text(json.dumps(manifest))
        if number == 2:
            assert Dataset(folder).table(1).equals(Dataset(written).table(1))
    with pytest.raises(ValueError, match="write the dataset again"):
        _ = Dataset(folder).days


def test_futures_are_written_with_their_exact_price(written: Path) -> None:
    dataset = Dataset(written)
    futures = dataset.table(3, "futures")
    market, state = dataset.oracle(3)
    assert (futures["price"].to_numpy() == market.vix_future(futures["T"].to_numpy(), state)).all()
    assert (futures["bid"] <= futures["price"]).all()
    assert (futures["ask"] >= futures["price"]).all()


def test_three_days_are_calm_median_and_stressed(written: Path) -> None:
    dataset = Dataset(written)
    low, middle, high = (float(dataset.days["vix"][i]) for i in pick_three_days(dataset))
    assert low == dataset.days["vix"].min()
    assert high == dataset.days["vix"].max()
    assert low <= middle <= high


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("cli") / "market"
    options = ("--days", 4, "--preset", "stressed", "--seed", 3, "--listing", "sparse", "--no-vix")
    return out, run("--out", out, *options, "--chains", 1, "--json")


def test_command_writes_what_it_names(simulated: tuple[Path, Result]) -> None:
    out, result = simulated
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    dataset = Dataset(out)
    assert facts["days"] == len(dataset) == 4
    assert facts["quotes"] == int(dataset.days["quotes"].sum())
    assert facts["coverage"] == pytest.approx(facts["quotes"] / facts["listed"])
    assert facts["vix"]["min"] <= facts["vix"]["median"] <= facts["vix"]["max"]
    assert (out / facts["picture"]).read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (out / "chains").iterdir()] == facts["chains"]


def test_chain_of_a_simulated_day_is_a_chain(simulated: tuple[Path, Result]) -> None:
    out, _ = simulated
    path = next((out / "chains").iterdir())
    chain = ab.read_chain(path)
    number = int(path.stem.rsplit("_", 1)[1])
    row = Dataset(out).days.row(number, named=True)
    assert chain.as_of == np.datetime64(row["as_of"])
    assert len(chain.quotes()) > 0.8 * row["quotes"]


def test_finished_dataset_is_not_made_again(
    simulated: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = simulated
    before = contents(out)
    monkeypatch.setattr(datasets, "write_table", lambda *_: pytest.fail("written again"))
    options = ("--days", 4, "--preset", "stressed", "--seed", 3, "--listing", "sparse", "--no-vix")
    result = run("--out", out, *options)
    assert result.exit_code == 0, result.stderr
    assert "coverage" in result.stdout
    assert contents(out) == before


def test_universe_has_a_market_per_row(tmp_path: Path) -> None:
    options = ("--universe", 3, "--listing", "sparse", "--no-vix", "--json")
    result = run("--out", tmp_path, *options)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["preset"] is None
    dataset = Dataset(tmp_path)
    assert dataset.days["theta"].n_unique() == 3
    with pytest.raises(ValueError, match="no table 'vix'"):
        dataset.quotes(0, "vix")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--days", 0], "days = 0"),
        (["--preset", "quiet"], "preset 'quiet' is not one of calm"),
        (["--seed", -1], "seed = -1"),
        (["--listing", "dense"], "--listing dense"),
        (["--coverage", 75], "coverage = 75.0 is a share"),
        (["--start", "yesterday"], "--start yesterday is not a date"),
        (["--universe", 0], "--universe 0"),
        (["--universe", 3, "--days", 5], "leave out --days"),
        (["--universe", 3, "--preset", "calm"], "leave out --days and --preset"),
        (["--coverage", 0.9, "--missing", 0.2], "cannot be reached"),
        (["--block", 0], "block = 0"),
        (["--days", 3, "--chains", 4], "--chains 4"),
    ],
)
def test_bad_options_exit_2_before_anything_is_written(
    options: list[object], words: str, tmp_path: Path
) -> None:
    result = run("--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_file_in_the_way_exits_2_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "chains").write_text("")
    (tmp_path / "file").write_text("")
    for out, words in ((tmp_path, "a folder is to go there"), (tmp_path / "file", "is a file")):
        result = run("--out", out, "--days", 1)
        assert result.exit_code == 2
        assert words in result.stderr


def test_other_seed_in_the_same_folder_exits_2(simulated: tuple[Path, Result]) -> None:
    out, _ = simulated
    result = run("--out", out, "--days", 4, "--preset", "stressed", "--seed", 9)
    assert result.exit_code == 2
    assert "another dataset" in result.stderr


def test_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "write_dataset", interrupted)
    result = run("--out", tmp_path, "--days", 2)
    assert result.exit_code == 130
    assert "same command again" in result.stderr


def test_failing_oracle_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ArithmeticError("the oracle fails at these parameters")

    monkeypatch.setattr(datasets, "write_dataset", failing)
    result = run("--out", tmp_path, "--days", 2)
    assert result.exit_code == 1
    assert "the oracle fails" in result.stderr


def test_plan_is_plain_json() -> None:
    config = PLAN.config()
    assert json.loads(json.dumps(config)) == config
    assert dt.date.fromisoformat(config["start"]) == PLAN.start
