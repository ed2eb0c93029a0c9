"""Static pictures of a fit: there, of the right size, and the same for the same fit."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image

import arbiter as ab
from arbiter.quotes import Quotes
from arbiter.report import pictures, write_pdf, write_pictures
from arbiter.report.curves import Readings
from arbiter.report.smile_panels import lay_out_smiles
from arbiter.report.smile_pictures import cut_line, draw_smiles
from arbiter.surface import Surface

NAMES = ["smiles", "residuals", "surface", "total_variance", "densities", "term_structure"]


def size(path: Path) -> tuple[int, int]:
    """Width and height from the header of a PNG file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def ink(path: Path) -> float:
    """Share of pixels that are not white."""
    pixels = image.imread(path)[..., :3]
    return float((pixels.min(axis=-1) < 0.98).mean())


def few(surface: Surface, expiries: int = 3) -> Quotes:
    T = np.repeat(surface.maturities[:expiries], 9)
    k = surface.log_strike(np.tile(np.linspace(-2.5, 1.5, 9), expiries), T)
    iv = surface.iv(k, T)
    table: dict[str, Any] = {"T": T, "k": k, "iv_bid": 0.99 * iv, "iv_ask": 1.02 * iv}
    table |= {"expiry": [f"$x_{t:.2f} <b>" for t in T], "forward": surface.forward(T)}
    return Quotes.from_frame(table)


@pytest.fixture(scope="module")
def surface() -> Surface:
    return ab.example()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, surface: Surface) -> list[Path]:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "new", surface, few(surface))


def test_every_panel_is_a_picture(drawn: list[Path]) -> None:
    assert [path.stem for path in drawn] == NAMES
    for path in drawn:
        assert 0.01 < ink(path) < 0.7, path.stem
    widths = {path.stem: size(path) for path in drawn}
    assert widths["total_variance"] == widths["densities"] == (1300, 780)
    assert widths["surface"] == (1690, 780)
    assert widths["smiles"] == (3 * 351, 351)


def test_an_empty_picture_would_be_found(tmp_path: Path) -> None:
    image.imsave(tmp_path / "white.png", np.ones((40, 60, 3)))
    assert size(tmp_path / "white.png") == (60, 40)
    assert ink(tmp_path / "white.png") == 0.0


def test_lines_end_at_their_frame() -> None:
    """A line from below the frame to above it and back, with a hole."""
    line = np.array([[0.0, 2.0, 4.0, 5.0, 6.0], [-1.0, 1.0, 3.0, np.nan, 1.0]])
    x, y = cut_line(line, 0.0, 2.0)
    np.testing.assert_allclose(x[np.isfinite(y)], [1.0, 2.0, 3.0, 6.0])
    np.testing.assert_allclose(y[np.isfinite(y)], [0.0, 1.0, 2.0, 1.0])
    inside = line[:, 1:2]
    np.testing.assert_array_equal(cut_line(inside, 0.0, 2.0), inside)


def test_every_smile_has_its_quotes_and_curves(surface: Surface) -> None:
    readings = Readings(surface, few(surface))
    panels = lay_out_smiles(readings)
    assert [panel.inside.size for panel in panels] == [9, 9, 9]
    (axes,) = draw_smiles(readings).axes
    texts = " ".join(text.get_text() for text in axes.texts)
    assert all(label.replace("$", r"\$") in texts for label in readings.quotes.labels)
    assert all(tick in texts for panel in panels for _, tick in panel.across + panel.up)
    inside, outside, *_ = (np.asarray(line.get_ydata()) for line in axes.lines[2:])
    assert np.isfinite(inside).sum() + np.isfinite(outside).sum() == 2 * len(readings.quotes)
    width, height = draw_smiles(readings).get_size_inches()
    for line in axes.lines:
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert np.nanmin(np.r_[x, y, 0.0]) >= 0.0
        assert np.nanmax(np.r_[x, 0.0]) <= width
        assert np.nanmax(np.r_[y, 0.0]) <= height


def test_same_fit_same_bytes(drawn: list[Path], surface: Surface, tmp_path: Path) -> None:
    again = write_pictures(tmp_path, surface, few(surface))
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(drawn, again, strict=True)] == [
        True
    ] * 6


def test_pdf_has_a_cover_and_a_page_for_each_panel(surface: Surface, tmp_path: Path) -> None:
    summary = {"status": "converged", "vix_surface": 15.69, "underlying": "SPX"}
    path = write_pdf(tmp_path / "report.pdf", surface, few(surface, 1), summary=summary)
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page ") == 7
    assert b"CreationDate" not in content
    again = write_pdf(tmp_path / "again.pdf", surface, few(surface, 1), summary=summary)
    assert again.read_bytes() == content


def test_error_midway_leaves_the_old_pdf(
    surface: Surface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"old")

    def fail(*_: Any) -> None:
        raise RuntimeError("midway")

    monkeypatch.setitem(pictures.PICTURES, "densities", fail)
    with pytest.raises(RuntimeError, match="midway"):
        write_pdf(path, surface, few(surface, 1), summary={})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
