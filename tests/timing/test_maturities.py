"""A maturity means one thing, in whatever form it is given."""

from __future__ import annotations

import copy
import datetime as dt
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import arbiter as ab
from arbiter import FuturesCurve, Quotes, Surface
from arbiter.chains import quote_time
from arbiter.frames import format_expiries_html
from arbiter.timing.expiries import Expiry, list_expiries
from arbiter.timing.maturities import as_datetime, to_year_fractions

AS_OF = np.datetime64("2023-09-14T16:15")
MINUTES = 525_600.0


def minutes_to(moment: str) -> float:
    return float((np.datetime64(moment) - AS_OF) / np.timedelta64(1, "m"))


def listed(*days: tuple[str, str]) -> tuple[Expiry, ...]:
    """Expiries with these labels and moments."""
    labels, moments = zip(*days, strict=True)
    return list_expiries(labels, [minutes_to(at) / MINUTES for at in moments], AS_OF)


BOTH = listed(("2023-10-20 SPX", "2023-10-20T09:30"), ("2023-10-20 SPXW", "2023-10-20T16:00"))
MORNING = BOTH[:1]


@pytest.mark.parametrize(
    ("T", "moment"),
    [
        ("2023-09-18", "2023-09-18T16:00"),
        (dt.date(2023, 9, 18), "2023-09-18T16:00"),
        (np.datetime64("2023-09-18"), "2023-09-18T16:00"),
        ("2023-11-24", "2023-11-24T13:00"),  # a half day
        ("2023-09-17", "2023-09-15T16:00"),  # a Sunday settles on Friday
        ("2023-09-18T00:00", "2023-09-18T00:00"),  # a moment is itself, midnight too
        (dt.datetime(2023, 9, 18), "2023-09-18T00:00"),
        (np.datetime64("2023-09-18T10:30"), "2023-09-18T10:30"),
        (dt.datetime(2023, 9, 18, 20, tzinfo=dt.UTC), "2023-09-18T16:00"),
        ("2023-09-18T16:00-04:00", "2023-09-18T16:00"),
        ("2023-12-18T21:00Z", "2023-12-18T16:00"),  # New York is five hours behind in winter
        (pd.Timestamp("2023-09-18T22:00", tz="Europe/Berlin"), "2023-09-18T16:00"),
        ("2023-09-18 PM", "2023-09-18T16:00"),
        ("2023-09-18 AM", "2023-09-18T09:30"),
    ],
)
def test_dates_settle_and_moments_stay(T: Any, moment: str) -> None:
    assert float(to_year_fractions(T, AS_OF)) == minutes_to(moment) / MINUTES


@pytest.mark.parametrize(
    ("T", "years"),
    [
        ("90min", 90 / MINUTES),
        ("6h", 360 / MINUTES),
        ("30d", 30 / 365),
        ("30D", 30 / 365),
        ("1.5d", 1.5 / 365),
        ("2w", 14 / 365),
        ("3M", 0.25),
        ("1y", 1.0),
        (dt.timedelta(days=30), 30 / 365),
        (np.timedelta64(30, "D"), 30 / 365),
        (0.25, 0.25),
        (1, 1.0),
    ],
)
def test_tenors_are_year_fractions_of_stated_length(T: Any, years: float) -> None:
    assert float(to_year_fractions(T, None)) == years


def test_a_date_alone_is_the_listed_expiry_that_settles_last() -> None:
    close, opening = minutes_to("2023-10-20T16:00"), minutes_to("2023-10-20T09:30")
    for expiries, minutes in (((), close), (BOTH, close), (MORNING, opening)):
        assert float(to_year_fractions("2023-10-20", AS_OF, expiries)) == minutes / MINUTES
    # the control: another date is not moved to a listed one
    other = minutes_to("2023-10-19T16:00") / MINUTES
    assert float(to_year_fractions("2023-10-19", AS_OF, MORNING)) == other


def test_labels_name_listed_expiries() -> None:
    names = ["2023-10-20 SPX", "2023-10-20 AM", "2023-10-20 SPXW", "2023-10-20 PM"]
    found = to_year_fractions(names, AS_OF, BOTH)
    assert found.tolist() == [BOTH[0].T, BOTH[0].T, BOTH[1].T, BOTH[1].T]
    assert float(to_year_fractions(BOTH[1], None)) == BOTH[1].T
    assert float(to_year_fractions("2023-10-20 SPX", None, BOTH)) == BOTH[0].T
    with pytest.raises(ValueError, match=r"no listed expiry \(there are 2023-10-20 SPX, "):
        to_year_fractions("2023-10-20 XSP", AS_OF, BOTH)


@pytest.mark.parametrize(
    "T",
    [
        ["2023-09-18", "2023-09-18T10:30", "30d", 0.25],
        ("2023-09-18", "2023-09-18T10:30", "30d", 0.25),
        np.array(["2023-09-18", "2023-09-18T10:30", "30d", 0.25], dtype=object),
        [np.datetime64("2023-09-18"), np.datetime64("2023-09-18T10:30"), "30d", 0.25],
        [dt.date(2023, 9, 18), dt.datetime(2023, 9, 18, 10, 30), dt.timedelta(days=30), 0.25],
    ],
)
def test_lists_may_mix_forms(T: Any) -> None:
    expected = [minutes_to("2023-09-18T16:00") / MINUTES, minutes_to("2023-09-18T10:30") / MINUTES]
    assert to_year_fractions(T, AS_OF).tolist() == [*expected, 30 / 365, 0.25]


def test_columns_of_frames_are_maturities() -> None:
    day, moment = dt.date(2023, 9, 18), dt.datetime(2023, 9, 18, 16)
    want = [minutes_to("2023-09-18T16:00") / MINUTES]
    zone = pd.Series([pd.Timestamp("2023-09-18T20:00", tz="UTC")])
    for column in (pl.Series([day]), pl.Series([moment]), pd.Series([moment]), zone):
        assert to_year_fractions(column, AS_OF).tolist() == want
    grid = np.array([["2023-09-18"], ["30d"]])
    assert to_year_fractions(grid, AS_OF).shape == (2, 1)


@pytest.mark.parametrize(
    ("T", "told"),
    [
        ("next Friday", "'2023-10-20T09:30', a tenor"),
        ("0.25", "give a year fraction"),
        ("30m", "M is a month, min a minute"),
        ("30 fortnights", "not known"),
        ("2023-09-31", "is no maturity"),
        (np.datetime64("2023-09"), "names no day"),
        (None, "T = None is no maturity"),
        ([None, 0.5], "T = None is no maturity"),
        (np.datetime64("NaT"), "is no maturity"),
        ([pd.NaT], "positive, finite"),
        (np.timedelta64("NaT"), "positive, finite"),
        ("0d", "at least"),
        (dt.timedelta(days=-1), "leave out expired options"),
        ("2023-09-14", "settles 2023-09-14T16:00, which is before as_of, 2023-09-14T16:15"),
        ("2250-01-01", "outside the years"),
        (object(), "is no maturity"),
    ],
)
def test_anything_else_is_refused_with_the_remedy(T: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        to_year_fractions(T, AS_OF)


def test_a_date_without_a_moment_to_count_from_is_refused() -> None:
    for T in ("2023-10-20", dt.datetime(2023, 10, 20, 12), "2023-10-20 PM"):
        with pytest.raises(ValueError, match=r"no as_of; pass year fractions or tenors"):
            to_year_fractions(T, None)


def test_a_moment_with_a_zone_is_converted_for_as_of_too() -> None:
    assert as_datetime("2023-09-14T20:15Z") == as_datetime("2023-09-14T16:15")
    for nothing in (np.datetime64("NaT"), np.datetime64("NaT", "s")):
        with pytest.raises(ValueError, match=r"not a time|names no day"):
            as_datetime(nothing)


def test_as_of_is_the_same_for_a_chain_and_for_a_surface() -> None:
    for day in ("2023-09-14", dt.date(2023, 9, 14), np.datetime64("2023-09-14")):
        assert as_datetime(day) == AS_OF
        assert as_datetime(day) == quote_time.given_moment(day)[0]
    assert as_datetime("2023-11-24") == np.datetime64("2023-11-24T13:15")  # a half day
    for moment in ("2023-09-14T00:00", "2023-09-16T12:00"):  # the control: moments stay
        assert as_datetime(moment) == np.datetime64(moment)


def test_dates_of_the_vix_settle_at_the_open() -> None:
    surface = ab.example()
    surface = surface.with_vix(ab.vix_prior(surface).slices)
    date, opening = "2026-03-18", "2026-03-18T09:30"
    assert float(surface.vix_future(date)) == float(surface.vix_future(opening))
    assert float(surface.vix_future(date)) != float(surface.vix_future(f"{date}T16:00"))
    assert float(surface.forward(date)) == float(surface.forward(f"{date}T16:00"))
    curve = FuturesCurve.of([date], [20.0], as_of="2026-01-02T16:15")
    assert curve.maturities[0] == float(surface.years(opening))


def quoted(labels: list[str], T: list[float], as_of: str | None = "2023-09-14T16:15") -> Quotes:
    table: dict[str, list[Any]] = {name: [] for name in ("T", "k", "iv_bid", "iv_ask", "expiry")}
    for label, t in zip(labels, T, strict=True):
        for k in (-0.05, 0.0, 0.05):
            row = (t, k, 0.19 - k * 0.1, 0.2 - k * 0.1, label)
            for name, value in zip(table, row, strict=True):
                table[name].append(value)
    return Quotes.from_frame(table, as_of=as_of)


def test_a_fitted_surface_knows_its_expiries_and_keeps_them(tmp_path: Path) -> None:
    quotes = quoted([one.label for one in BOTH], [one.T for one in BOTH])
    surface = ab.fit(quotes)
    first, second = surface.expiries
    assert (first.label, first.settlement, first.T) == ("2023-10-20 SPX", "AM", BOTH[0].T)
    assert (second.date, second.settlement) == (dt.date(2023, 10, 20), "PM")
    assert second.moment == np.datetime64("2023-10-20T16:00")
    path = tmp_path / "s.npz"
    surface.save(path)
    for twin in (Surface.load(path), copy.deepcopy(surface)):
        assert twin.expiries == surface.expiries
        assert float(twin.iv(0.0, "2023-10-20 AM")) == float(surface.iv(0.0, BOTH[0].T))
    # the controls: nothing is made up where labels or the moment are not known
    assert ab.example().expiries == ()
    (unknown,) = ab.fit(quoted(["near"], [0.1])).expiries
    assert (unknown.date, unknown.settlement) == (None, None)
    (loose,) = ab.fit(quoted(["2023-10-20 SPX"], [0.1], None)).expiries
    assert (loose.date, loose.settlement, loose.moment) == (dt.date(2023, 10, 20), None, None)


def test_a_surface_that_knows_days_alone_counts_whole_days() -> None:
    days = ab.fit(quoted(["2023-10-20", "2023-11-17"], [36 / 365, 64 / 365], "2023-09-14T00:00"))
    assert days.years(["2023-10-20", "2023-10-27"]).tolist() == [36 / 365, 43 / 365]
    assert float(days.vix_years("2023-10-18")) == 34 / 365
    # the control: the same midnight, with expiries to the minute
    T = [(36 * 1440 + 960) / MINUTES, (64 * 1440 + 960) / MINUTES]
    minutes = ab.fit(quoted(["2023-10-20", "2023-11-17"], T, "2023-09-14T00:00"))
    assert float(minutes.years("2023-10-27")) == (43 * 1440 + 960) / MINUTES


@pytest.mark.parametrize("info", [{"expiries": ["one"]}, {"expiries": 7}, {"expiries": "ab"}])
def test_foreign_info_is_not_taken_for_expiries(info: dict[str, Any]) -> None:
    slopes = [[0.1, 0.1], [0.2, 0.2]]
    assert Surface.from_slopes([-1.0, 1.0], [0.25, 1.0], slopes, info=info).expiries == ()


def test_a_surface_prints_as_a_table_and_as_html() -> None:
    surface = ab.fit(quoted(["2023-10-20 SPX", "<b>x</b>\n"], [0.1, 0.2]))
    head, columns, first, second = repr(surface).splitlines()
    assert head == str(surface)
    assert columns.split()[:2] == ["expiry", "days"]
    assert first.split()[:3] == ["2023-10-20", "SPX", "36.50"]
    assert first.endswith(f"{float(surface.iv(0.0, 0.1)):.2%}")
    assert second.startswith("  <b>x</b>?")
    assert hasattr(Surface, "_repr_html_")  # by which a notebook asks
    page = format_expiries_html(surface)
    assert page.count("<tr>") == 3
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    example = repr(ab.example()).splitlines()
    assert len(example) == 2 + 7 + 1
    assert example[6].strip() == "... 7 more"


def test_years_given_for_days_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    surface = ab.example()  # to two years
    with pytest.raises(ValueError, match=r"T = 30 is in years, .* for days give '30d'"):
        surface.iv(0.0, 30)
    with pytest.raises(ValueError, match="in years"):
        surface.forward_variance([0.0, 11.0])
    with caplog.at_level(logging.WARNING, "arbiter"):
        surface.iv(0.0, [0.5, 3.0])  # at one and a half times the last maturity nothing is said
        assert caplog.messages == []
        surface.iv(0.0, 3.1)
        surface.put(5000.0, 3.2)
    assert len(caplog.messages) == 1
    assert "1.6 times the last maturity, 2" in caplog.messages[0]


def test_tenors_are_lengths_of_time() -> None:
    surface = ab.fit(quoted(["2023-10-20 SPX", "2023-11-17 SPX"], [0.1, 0.2]))
    for tenor in (30 / 365, "30d", dt.timedelta(days=30), np.timedelta64(30, "D")):
        assert float(surface.forward_variance(0.05, tenor)) == float(surface.forward_variance(0.05))
        assert float(surface.vix(tenor)) == float(surface.vix())
        assert float(surface.vix_error(tenor)) == float(surface.vix_error())
    assert surface.vix_error(["30d", "60d"]).shape == (2,)
    with pytest.raises(ValueError, match=r"T = 30 is in years: for days give '30d'"):
        FuturesCurve.of([30], [20.0])
    assert FuturesCurve.of(["30d"], [20.0]).maturities[0] == 30 / 365
    with pytest.raises(ValueError, match="days = '30d' must be a positive number"):
        ab.vix(ab.example_chain(), days="30d")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tenor = '30d' must be a positive number"):
        ab.JointSettings(tenor="30d")  # type: ignore[arg-type]
    for wrong in ("2023-10-20", "2023-10-20 SPX", dt.date(2023, 10, 20), 0.0, "soon", None):
        with pytest.raises(ValueError, match=r"tenor = .* is no length of time: give positive"):
            surface.forward_variance(0.05, wrong)  # type: ignore[arg-type]


def test_windows_and_errors_of_years_given_for_days_are_refused_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    surface = ab.fit(quoted(["2023-10-20 SPX", "2025-09-19 SPX"], [0.1, 2.0]))
    asked: dict[str, Callable[[Surface, Any], Any]] = {
        "variance": lambda s, T: s.forward_variance(T),
        "tenor": lambda s, T: s.forward_variance(0.0, T),
        "index": lambda s, T: s.vix(T),
        "future": lambda s, T: s.with_vix(ab.vix_prior(ab.example()).slices).vix_future(T),
        "frame": lambda s, T: s.to_frame([0.0], [T]),
        "error": lambda s, T: s.vix_error(T),  # type: ignore[attr-defined]
        "iv error": lambda s, T: s.iv_error(0.0, T),  # type: ignore[attr-defined]
    }
    for name, ask in asked.items():
        with pytest.raises(ValueError, match=r"in years, .* for days give '30"):
            ask(surface, 30)
        for T, count in (("2y", 0), ("4y", 1)):
            caplog.clear()
            twin = copy.deepcopy(surface)
            with caplog.at_level(logging.WARNING, "arbiter"):
                ask(twin, T)
                ask(twin, T) if name != "future" else None  # whose surface is a new one each time
            assert sum("times the last maturity" in text for text in caplog.messages) == count, name


def test_a_short_surface_answers_up_to_a_year(caplog: pytest.LogCaptureFixture) -> None:
    week = Surface.from_slopes([-1.0, 1.0], [7 / 365], [[0.03, 0.03]])
    with caplog.at_level(logging.WARNING, "arbiter"):
        assert float(week.vix()) > 0.0
        assert float(week.iv(0.0, 1.0)) > 0.0
    assert len(caplog.messages) == 1
    with pytest.raises(ValueError, match="in years"):
        week.iv(0.0, 1.01)


def test_the_audit_asks_for_nothing_that_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    surface = ab.example()
    surface = surface.with_vix(ab.vix_prior(surface).slices)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "arbiter"):
        assert surface.certificate().passed
    assert [text for text in caplog.messages if "times the last" in text] == []


def test_a_date_alone_has_the_price_of_the_market(data_dir: Path) -> None:
    path = data_dir / "chains" / "spx_2023-09-14_close.csv"
    surface = ab.fit(ab.read_chain(path).quotes())
    assert 9.70 <= float(surface.put(4500.0, "2023-09-18")) <= 10.00
    assert float(surface.put(4500.0, "2023-09-18 SPXW")) == float(
        surface.put(4500.0, dt.date(2023, 9, 18))
    )
    assert float(surface.put(4500.0, "2023-09-18T00:00")) < 9.0  # the control: midnight
    halves = {one.settlement for one in surface.expiries}
    assert halves == {"AM", "PM"}
    third_friday = surface.years(["2023-10-20", "2023-10-20 SPXW", "2023-10-20 SPX"])
    assert third_friday[0] == third_friday[1] > third_friday[2]
