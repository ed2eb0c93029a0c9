"""The clock: when options settle, and what the time in a file means."""

from __future__ import annotations

import datetime as dt
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.chains import ChainError, quote_time
from arbiter.timing.sessions import (
    ALWAYS,
    CME,
    FIRST_YEAR,
    LAST_YEAR,
    NYSE,
    ExchangeCalendar,
    is_quoted,
    last_session,
    moment_of,
    session_close,
    settlement_time,
)

Closes = dict[np.datetime64, np.datetime64]  # of every session
CENTURY = (FIRST_YEAR, LAST_YEAR)


@cache
def published_closes(name: str, years: tuple[int, int] = CENTURY) -> Closes:
    """Those of another source, which is kept by hand and has a rule of its own for each holiday."""
    with warnings.catch_warnings():  # its own calls into pandas
        warnings.simplefilter("ignore")
        import exchange_calendars

        calendar = exchange_calendars.get_calendar(
            name, start=f"{years[0]}-01-01", end=f"{years[1]}-12-31"
        )
        local = calendar.closes.dt.tz_convert("America/New_York").dt.tz_localize(None)
    sessions = calendar.sessions.to_numpy().astype("datetime64[D]")
    return dict(zip(sessions, local.to_numpy().astype("datetime64[m]"), strict=True))


@cache
def closes_of(calendar: ExchangeCalendar, years: tuple[int, int] = CENTURY) -> Closes:
    days = np.arange(f"{years[0]}-01-01", f"{years[1] + 1}-01-01", dtype="datetime64[D]")
    return {day: session_close(day, calendar) for day in days if last_session(day, calendar) == day}


def test_every_session_and_close_of_a_century_is_the_published_one() -> None:
    assert closes_of(NYSE) == published_closes("XNYS")
    assert len(published_closes("XNYS")) > 27_000


def test_a_holiday_or_a_half_day_too_few_is_found() -> None:
    """The control: one closure forgotten, and one half day."""
    forgotten, whole = dt.date(2025, 1, 9), dt.date(2098, 12, 24)
    wrong = NYSE._replace(
        list_holidays=lambda year: [d for d in NYSE.list_holidays(year) if d != forgotten],
        list_early_closes=lambda year: {
            day: at for day, at in NYSE.list_early_closes(year).items() if day != whole
        },
    )
    found = set(closes_of(wrong).items()) ^ set(published_closes("XNYS").items())
    assert {day.item() for day, _ in found} == {forgotten, whole}


def list_days(*days: object) -> set[dt.date]:
    return {dt.date.fromisoformat(str(day)) for day in days}


FUTURES_YEARS = (2000, 2049)
# Days of mourning on which the night traded: press releases of the exchange of 2018-12-02 and
# 2024-12-30, and the Chicago Tribune of 2004-06-08. The published calendar has them closed.
MOURNING = list_days("2004-06-11", "2018-12-05", "2025-01-09")
ATTACKS = list_days("2001-09-11", "2001-09-12", "2001-09-13", "2001-09-14")


def contrast_with_published(calendar: ExchangeCalendar) -> tuple[set[dt.date], set[dt.date]]:
    """Sessions that only the calendar has, and those that only the published one of CME has."""
    own = list_days(*closes_of(calendar, FUTURES_YEARS))
    published = list_days(*published_closes("CMES", FUTURES_YEARS))
    return own - published, published - own


def test_cme_closes_on_the_published_days() -> None:
    """The published calendar lacks the attacks, and Good Fridays with an employment report."""
    more, fewer = contrast_with_published(CME)
    assert fewer == ATTACKS
    good_fridays = more - MOURNING
    assert more - good_fridays == MOURNING
    # those of the exchange's holiday calendars, from 2009 to 2026
    known = {day.year for day in good_fridays if 2009 <= day.year <= 2026}
    assert known == {2010, 2012, 2015, 2021, 2023, 2026}
    assert all(day.weekday() == 4 and day in NYSE.list_holidays(day.year) for day in good_fridays)


@pytest.mark.parametrize("day", [dt.date(2024, 3, 29), dt.date(2021, 12, 24), dt.date(2024, 7, 4)])
def test_a_closure_of_cme_too_few_or_too_many_is_found(day: dt.date) -> None:
    """The control: Good Friday or Christmas forgotten, and Independence Day taken as closed."""
    planted = {day.year: sorted({day} ^ set(CME.list_holidays(day.year)))}
    wrong = CME._replace(list_holidays=lambda year: planted.get(year) or CME.list_holidays(year))
    pairs = zip(contrast_with_published(wrong), contrast_with_published(CME), strict=True)
    assert set().union(*(found ^ right for found, right in pairs)) == {day}


def test_cme_halts_early_on_the_published_days() -> None:
    """The published calendar has one time for all, no day's break, and not every early halt."""
    own, published = (
        list_days(*(day for day, at in closes.items() if at - day != np.timedelta64(full, "h")))
        for closes, full in (
            (closes_of(CME, FUTURES_YEARS), 17),
            (published_closes("CMES", FUTURES_YEARS), 18),
        )
    )
    assert published <= own
    hurricane = list_days("2012-10-29", "2012-10-30")
    for day in own - published - hurricane - contrast_with_published(CME)[0]:
        juneteenth = day in NYSE.list_holidays(day.year) and day.month == 6
        assert juneteenth or day in NYSE.list_early_closes(day.year), day


@pytest.mark.parametrize(
    ("day", "close"),
    [
        # the exchange's notices and holiday calendars; Chicago is an hour behind
        ("2007-09-03", "11:30"),  # Labor Day
        ("2013-07-03", "13:15"),
        ("2013-07-04", "11:30"),
        ("2014-05-26", "13:00"),  # Memorial Day
        ("2012-10-30", "09:15"),  # a hurricane
        ("2021-04-02", "09:15"),  # Good Friday with an employment report
        ("2018-12-05", "09:30"),  # a day of mourning
        ("2020-12-24", "13:15"),
        ("2025-01-20", "13:00"),  # Martin Luther King
        ("2021-12-31", "17:00"),
    ],
)
def test_cme_halts_at_the_time_of_its_notices(day: str, close: str) -> None:
    assert session_close(np.datetime64(day), CME) == np.datetime64(f"{day}T{close}")


@pytest.mark.parametrize(
    ("expiry", "settlement", "settles"),
    [
        ("2023-03-17", "AM", "2023-03-17T09:30"),
        ("2023-03-17", "PM", "2023-03-17T16:00"),
        ("2023-11-24", "PM", "2023-11-24T13:00"),  # the day after Thanksgiving closes at 13:00
        ("2023-11-24", "AM", "2023-11-24T09:30"),
        ("2013-01-19", "AM", "2013-01-18T09:30"),  # options expired on Saturdays until 2015
        ("2023-04-07", "PM", "2023-04-06T16:00"),  # Good Friday
        ("2028-12-15", "AM", "2028-12-15T09:30"),  # years ahead of any list of sessions
        ("2099-12-18", "PM", "2099-12-18T16:00"),
        ("2020-01-01", "PM", "2019-12-31T16:00"),  # the first day of a year looks back
        ("1990-01-01", "PM", "1989-12-29T16:00"),
        ("1991-12-24", "PM", "1991-12-24T14:00"),  # half days closed an hour later until 1992
    ],
)
def test_options_settle_at_the_open_or_close_of_their_last_session(
    expiry: str, settlement: str, settles: str
) -> None:
    found = settlement_time(dt.date.fromisoformat(expiry), settlement)
    assert found == dt.datetime.fromisoformat(settles)


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ("2023-02-07T11:55", "2023-02-07T11:55"),
        ("2023-02-07T16:15", "2023-02-07T16:15"),
        ("2023-02-07T16:16", "2023-02-07T16:15"),
        ("2023-02-07T23:59", "2023-02-07T16:15"),
        ("2023-11-24T18:00", "2023-11-24T13:15"),  # half day
        ("2023-08-20T22:42", "2023-08-18T16:15"),  # Sunday
        ("2023-09-04T10:00", "2023-09-01T16:15"),  # Labor Day
        ("2019-05-13T04:47", "2019-05-13T04:47"),  # the overnight session
        ("2019-08-29T09:28", "2019-08-29T09:28"),  # before the open
    ],
)
def test_a_stamp_outside_the_session_means_its_last_quotes(stamp: str, moment: str) -> None:
    found, note = moment_of(np.datetime64(stamp, "m"))
    assert found == np.datetime64(moment, "s")
    assert (note is None) == (stamp == moment)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("May 13 2019 @ 04:47 ET", "2019-05-13T04:47"),
        ("Date: February 5 2022, 8:09 PM EST", "2022-02-05T20:09"),
        ("Date: July 12, 2022, 11:55 AM EDT", "2022-07-12T11:55"),
        ("Date: February 7, 2023 at 5:34 PM EST", "2023-02-07T17:34"),
        ("Date: February 7, 2023 at 12:04 AM EST", "2023-02-07T00:04"),
        ("Date: 9 декабря 2023 г. в 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 грудня 2023 р. о 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9. Dezember 2023 um 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 décembre 2023 à 13:49 UTC−5", "2023-12-09T13:49"),
        ("Date: mardi 7 février 2023 à 13:49 UTC−5", "2023-02-07T13:49"),
        ("Date: 9 de diciembre de 2023, 1:49 p. m. GMT-5", "2023-12-09T13:49"),
        ("Date: 9 de dezembro de 2023 às 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 dicembre 2023 alle ore 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 grudnia 2023 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9. července 2023 v 13:49 GMT-4", "2023-07-09T13:49"),
        ("Date: 9 Aralık 2023 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 december 2023 om 13:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 9 mars 2023 kl. 13:49 GMT-5", "2023-03-09T13:49"),
        ("Date: 2023年12月9日 GMT-5 13:49", "2023-12-09T13:49"),
        ("Date: 2023년 12월 9일 오후 1:49 GMT-5", "2023-12-09T13:49"),
        ("Date: 2023-12-09T13:49 ET", "2023-12-09T13:49"),
        ("Date: 12/9/2023, 1:49 PM EST", "2023-12-09T13:49"),
        ("Date: 09.12.2023, 13:49 ET", "2023-12-09T13:49"),
        ("Date: December 9, 2023 at 7:49 PM GMT+1", "2023-12-09T13:49"),
        ("Date: December 9, 2023 at 6:49 PM UTC", "2023-12-09T13:49"),
        ("Date: December 9, 2023 at 12:49 PM CST", "2023-12-09T13:49"),
        ("2023-12-09 1:49pm", "2023-12-09T13:49"),  # without a space
        ("2023-12-09 1:49p.m. EST", "2023-12-09T13:49"),
        ("Date: July 9, 2023 at 1:49 PM EST", "2023-07-09T14:49"),  # EST is UTC−5, in July too
    ],
)
def test_the_stamp_is_read_in_any_language_and_zone(text: str, moment: str) -> None:
    found = quote_time.parse_stamp(text)
    assert found is not None
    assert found.moment == np.datetime64(moment, "m")
    assert found.timed


@pytest.mark.parametrize(
    "text", ["", "S&P 500 INDEX,Last: 4604.3701", "Date: 31 February 2023 10:00", "2023", "13:49"]
)
def test_no_date_is_made_up(text: str) -> None:
    assert quote_time.parse_stamp(text) is None


def test_what_a_stamp_leaves_open_is_said() -> None:
    for text, words in (
        ("Date: February 7, 2023 at 5:34 PM", "no time zone"),
        ("Date: 2/7/2023 17:34 ET", "month first"),
        ("Date: February 7, 2023 at 10:34 PM UTC", "is not New York's"),
    ):
        found = quote_time.parse_stamp(text)
        assert found is not None
        assert words in " ".join(found.notes)
    clear = quote_time.parse_stamp("Date: February 7, 2023 at 5:34 PM EST")
    assert clear is not None
    assert clear.notes == ()


@pytest.mark.parametrize(
    ("as_of", "moment"),
    [
        ("2023-02-07T11:55", "2023-02-07T11:55"),
        ("2023-02-07 11:55:30", "2023-02-07T11:55"),
        ("2023-02-07T16:55+00:00", "2023-02-07T11:55"),
        ("February 7, 2023 at 11:55 AM EST", "2023-02-07T11:55"),
        (dt.datetime(2023, 2, 7, 11, 55), "2023-02-07T11:55"),
        (dt.datetime(2023, 2, 7, 16, 55, tzinfo=dt.UTC), "2023-02-07T11:55"),
        (np.datetime64("2023-02-07T11:55"), "2023-02-07T11:55"),
        ("2023-02-07", "2023-02-07T16:15"),  # a day alone means its close
        (dt.date(2023, 2, 7), "2023-02-07T16:15"),
        (np.datetime64("2023-02-07"), "2023-02-07T16:15"),
        ("2023-11-24", "2023-11-24T13:15"),
        ("2023-02-05", "2023-02-03T16:15"),
    ],
)
def test_as_of_is_a_moment_in_new_york(as_of: object, moment: str) -> None:
    assert quote_time.given_moment(as_of)[0] == np.datetime64(moment, "s")


@pytest.mark.parametrize(
    "as_of", ["tomorrow", "", 7, 20230207, np.datetime64("NaT"), "1066-10-14T09:00", float("nan")]
)
def test_as_of_that_is_no_moment_is_refused_with_an_example(as_of: object) -> None:
    with pytest.raises(ChainError, match=r"as_of = .*such as as_of='2023-02-07T16:15'"):
        quote_time.parse_as_of(as_of)


@given(st.text(max_size=60))
def test_no_header_text_breaks_the_parser(text: str) -> None:
    found = quote_time.parse_stamp(text)
    assert found is None or isinstance(found.moment, np.datetime64)


@given(st.datetimes(dt.datetime(1991, 1, 1), dt.datetime(2098, 12, 31)))
def test_the_moment_is_never_after_the_stamp_and_never_a_week_before(stamp: dt.datetime) -> None:
    moment, _ = moment_of(np.datetime64(stamp, "m"))
    age = np.datetime64(stamp, "m") - moment
    assert np.timedelta64(0, "m") <= age < np.timedelta64(7, "D")


@pytest.mark.parametrize(
    ("moment", "nyse", "cme"),
    [
        ("2023-02-07T11:55", True, True),
        ("2023-02-07T16:15", True, True),
        ("2023-02-07T16:16", False, True),
        ("2023-02-07T17:30", False, False),  # the hour in which futures do not trade
        ("2023-02-07T20:30", False, True),
        ("2023-02-07T03:00", True, True),  # the overnight session
        ("2023-02-10T18:00", False, False),  # Friday
        ("2023-02-11T09:00", False, False),
        ("2023-02-12T17:59", False, False),  # Sunday
        ("2023-02-12T18:00", False, True),
        ("2023-11-24T13:15", True, True),  # a half day
        ("2023-11-24T13:16", False, False),
        ("2023-11-23T12:00", False, True),  # Thanksgiving
        ("2023-11-23T14:00", False, False),
        ("2023-11-23T20:00", False, True),  # the session of the next day
        ("2023-12-24T20:00", False, False),  # the evening before Christmas
        ("2023-12-25T20:00", False, True),
    ],
)
def test_each_calendar_has_its_hours(moment: str, nyse: bool, cme: bool) -> None:
    at = np.datetime64(moment, "m")
    assert (is_quoted(at, NYSE), is_quoted(at, CME), is_quoted(at, ALWAYS)) == (nyse, cme, True)
    found, note = moment_of(at, calendar=CME)
    assert (found == at, note is None) == (cme, cme)
    assert is_quoted(found, CME)
    assert moment_of(at, calendar=ALWAYS) == (at, None)


def test_a_day_alone_has_last_quotes_on_its_calendar() -> None:
    day = quote_time.Stamp(np.datetime64("2023-02-12T00:00"), False)
    for name, moment in (("NYSE", "2023-02-10T16:15"), ("CME", "2023-02-10T17:00")):
        found, notes = quote_time.quote_moment(day, quote_time.require_calendar(name))
        assert found == np.datetime64(moment)
        assert len(notes) == 1
    with pytest.raises(ChainError, match="around the clock no quotes are the last"):
        quote_time.quote_moment(day, ALWAYS)
    with pytest.raises(ChainError, match="calendar = 'LSE' is not one of NYSE, CME, 24/7"):
        quote_time.require_calendar("LSE")


@pytest.mark.parametrize(
    ("as_of", "moment"),
    [
        ("2023-02-11T14:00Z", "2023-02-11T09:00"),  # a Saturday
        ("2023-02-07T20:30", "2023-02-07T20:30"),
    ],
)
def test_a_time_of_day_that_was_given_is_not_moved(as_of: str, moment: str) -> None:
    day = moment[:10]
    found, _, doubts = quote_time.given_moment(as_of)
    assert found == np.datetime64(moment)
    assert len(doubts) == 1
    assert f"{moment} (New York) is outside of the quoting hours of NYSE" in doubts[0]
    assert f"as_of='{day}'" in doubts[0]
    # the controls: around the clock nothing is said, and a day alone is its last quotes
    assert quote_time.given_moment(as_of, ALWAYS) == (found, (), ())
    moved, notes, doubts = quote_time.given_moment(day)
    assert moved < found
    assert (len(notes), doubts) == (1, ())
