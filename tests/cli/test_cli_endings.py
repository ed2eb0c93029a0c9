"""How commands end: exit codes, remedies in the words of the command line, and what is printed."""

import logging
import pickle
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from arbiter import cli
from arbiter.chains import ChainError, Remedy, read_chain
from arbiter.cli.console_log import show_only_notices
from arbiter.cli.exit_codes import (
    BAD_INPUT,
    INTERRUPTED,
    UNEXPECTED_ERROR,
    exit_interrupted,
    explain_error,
)
from arbiter.cli.score_lines import format_share
from arbiter.data import example_chain_path

LINES = example_chain_path().read_text().splitlines(keepends=True)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A chain that does not say when it was quoted."""
    path = tmp_path / "bare.csv"
    path.write_text("".join(LINES[4:60]))
    return path


def test_an_error_carries_the_argument_that_mends_it(bare: Path) -> None:
    with pytest.raises(ChainError) as caught:
        read_chain(bare)
    assert caught.value.remedy == Remedy("as_of", "2023-02-07T16:15")
    assert pickle.loads(pickle.dumps(caught.value)).remedy == caught.value.remedy  # noqa: S301
    with pytest.raises(ChainError) as refused:
        read_chain(bare, layout="tidy")
    assert refused.value.remedy is None


def test_the_command_line_names_its_own_option(bare: Path) -> None:
    error = ChainError("bare.csv: what is it?", Remedy("underlying", "SPX"))
    assert explain_error(error, bare) == "bare.csv: what is it? (here: --underlying SPX)"


def test_a_share_below_one_is_never_shown_as_all() -> None:
    shares = {1.0: "100.00%", 0.99998: "99.99%", 0.29: "29.00%", 0.0: "0.00%", None: "–"}
    assert {share: format_share(share) for share in shares} == shares


def test_words_alone_are_no_remedy(bare: Path) -> None:
    """The control: only what an error carries is reworded, whatever its message looks like."""
    message = "bare.csv: give as_of, such as as_of='2023-02-07T16:15', or give underlying='SPX'"
    for error in (ValueError(message), ChainError(message)):
        assert explain_error(error, bare) == message


def test_the_remedy_of_a_second_file_is_kept(bare: Path, tmp_path: Path) -> None:
    arguments = ["fit", str(example_chain_path()), "--vix", str(bare), "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == BAD_INPUT
    assert result.stderr.startswith("Error: bare.csv does not say when it was quoted")
    assert "(here: --as-of 2023-02-07T16:15)" in result.stderr


def test_an_unexpected_error_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks() -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(cli, "app", breaks)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == UNEXPECTED_ERROR == 3
    said = capsys.readouterr().err
    assert said.startswith("Error: unexpected RuntimeError: nobody foresaw this\n")
    assert "Please report it" in said
    assert "Traceback" not in said
    monkeypatch.setenv("ARBITER_DEBUG", "1")  # the control: it is there for whoever asks
    with pytest.raises(SystemExit):
        cli.main()
    assert "Traceback" in capsys.readouterr().err


def test_a_panic_of_a_compiled_library_is_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Panic(BaseException):
        """As those of polars and of other libraries in Rust: no ``Exception``."""

    def breaks() -> None:
        raise Panic("\x1b[2Jout of range")

    monkeypatch.setattr(cli, "app", breaks)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == UNEXPECTED_ERROR
    assert "unexpected Panic: \N{REPLACEMENT CHARACTER}[2Jout of range" in capsys.readouterr().err


def test_bad_input_is_no_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["arbiter", "vix", "missing.csv"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == BAD_INPUT == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupted_command_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        exit_interrupted("give the same command again")
    assert ended.value.exit_code == INTERRUPTED == 130
    assert capsys.readouterr().err == "interrupted: give the same command again\n"


@pytest.mark.parametrize("name", cli.LAB_COMMANDS)
def test_without_the_laboratory_its_commands_name_the_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    app = cli.build_app()
    for options in ([], ["--out", "run", "--help"]):
        result = CliRunner().invoke(app, [name, *options])
        assert result.exit_code == BAD_INPUT
        assert f"arbiter {name} is part of the package arbiter-lab" in result.stderr
        assert "pip install arbiter-lab" in result.stderr
    assert name not in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize("name", cli.LAB_COMMANDS)
def test_with_the_laboratory_its_commands_are_listed(name: str) -> None:
    """The control: the test environment has it."""
    assert name in CliRunner().invoke(cli.build_app(), ["--help"]).stdout


def test_only_notices_are_printed_while_a_command_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.getLogger("arbiter.planted")
    with show_only_notices():
        log.warning("odd quotes")
        log.warning("please wait", extra={"notice": True})
    log.warning("later", extra={"notice": True})
    assert capsys.readouterr().err == "please wait\n"
