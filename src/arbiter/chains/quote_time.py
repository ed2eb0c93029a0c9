"""The moment of the quotes: in a file's header, as browsers of any language write it, or given."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from typing import Any, NamedTuple

import numpy as np

from arbiter.chains.errors import ChainError, Remedy
from arbiter.conventions import MINUTES_PER_DAY
from arbiter.timing.sessions import (
    ALWAYS,
    CALENDARS,
    FIRST_YEAR,
    LAST_YEAR,
    NYSE,
    ExchangeCalendar,
    convert_to_new_york,
    is_quoted,
    moment_of,
)

_MAX_HEADER_LENGTH = 400  # characters of a header line that are looked at

# Stems without accents: English, German, French, Spanish, Italian, Portuguese, Dutch, the
# Scandinavian ones, Polish, Czech, Turkish, Russian and Ukrainian. The longest that fits counts.
_MONTH_STEMS = (
    "jan ene gen oca sty led янв січ",
    "feb fev sub lut uno фев лют",
    "mar mrz maa bre мар бер",
    "apr avr abr nis kwi dub апр кві",
    "may mai mag mei maj kve мая маи тра",
    "jun juin giu haz cze cerv июн чер",
    "jul juil lug tem lip cervenc июл лип",
    "aug aou ago agu sie srp авг сер",
    "sep set eyl wrz zar сен вер",
    "oct okt ott out eki paz rij окт жов",
    "nov kas lis ноя лис",
    "dec dez dic ara gru pros дек гру",
)
_MONTH_BY_STEM = {
    stem: month for month, stems in enumerate(_MONTH_STEMS, 1) for stem in stems.split()
}

_HOURS_FROM_UTC = {
    **{"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7},
    **{"utc": 0, "gmt": 0, "z": 0, "bst": 1, "cet": 1, "cest": 2, "msk": 3, "jst": 9, "hkt": 8},
}
_OFFSET_PATTERN = re.compile(r"\b(?:gmt|utc)\s*([+-])\s*(\d{1,2})(?::?(\d{2}))?\b")
_ZONE_PATTERN = re.compile(r"(?<=[\s\d])(" + "|".join([*_HOURS_FROM_UTC, "et", "eastern"]) + r")\b")
_YEAR_FIRST_PATTERN = re.compile(
    r"(?<!\d)(\d{4})\s*[-/.年년]\s*(\d{1,2})\s*[-/.月월]\s*(\d{1,2})(?!\d)"
)
_YEAR_LAST_PATTERN = re.compile(r"(?<!\d)(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?!\d)")
_TIME_PATTERN = re.compile(r"(?<![\d:])(\d{1,2})\s?[:h.時시]\s?(\d{2})(?::(\d{2}))?(?!\d)")
_AM_PM_PATTERN = re.compile(r"(?<![a-z])([ap])\.?\s?m\b|(上午|午前|오전)|(下午|午後|오후)")


class Stamp(NamedTuple):
    """A moment as it is written somewhere.

    Attributes:
        moment: New York time in minutes, without a zone.
        timed: Whether a time of day is written, and not the date alone.
        notes: What had to be assumed, as sentences.
        inferred: Whether the source does not state it, and it follows from times of its rows.
    """

    moment: np.datetime64
    timed: bool
    notes: tuple[str, ...] = ()
    inferred: bool = False


def parse_stamp(text: str) -> Stamp | None:
    """The moment written in ``text``; None if there is no date in it."""
    letters = unicodedata.normalize("NFKD", text[:_MAX_HEADER_LENGTH].casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    text = unicodedata.normalize("NFC", plain).replace("\u2212", "-")
    notes: list[str] = []
    found = _parse_date(text, notes)
    if found is None:
        return None
    day, rest = found
    clock = _TIME_PATTERN.search(rest)
    if clock is None:
        return Stamp(np.datetime64(day, "m"), False, tuple(notes))
    hour, minute = int(clock[1]), int(clock[2])
    half = _AM_PM_PATTERN.search(rest)
    if half and hour <= 12:
        hour = hour % 12 + (12 if half[1] == "p" or half[3] else 0)
    if hour > 23 or minute > 59:
        return None
    local = dt.datetime(day.year, day.month, day.day, hour, minute)
    return Stamp(_convert_to_new_york(local, rest, notes), True, tuple(notes))


def _parse_date(text: str, notes: list[str]) -> tuple[dt.date, str] | None:
    """The date in ``text``, and the text without it."""
    if match := _YEAR_FIRST_PATTERN.search(text):
        year, month, day = (int(part) for part in match.groups())
        rest = text[match.end() :] if text[match.end() :].strip(" t,") else text[: match.start()]
    elif match := _YEAR_LAST_PATTERN.search(text):
        first, mark, second, year = int(match[1]), match[2], int(match[3]), int(match[4])
        month, day = (second, first) if mark == "." or first > 12 else (first, second)
        if mark != "." and first != second and max(first, second) <= 12:
            notes.append(f"the date {match[0]} was read month first")
        rest = text[: match.start()] + " " + text[match.end() :]
    else:
        years = re.findall(r"(?<![\d:.])((?:19|20)\d{2})(?![\d:.]*\d)", text)
        months = [
            number for word in re.findall(r"[^\W\d_]{3,}", text) if (number := _parse_month(word))
        ]
        if not years or not months:
            return None
        year, month = int(years[0]), months[-1]
        rest = re.sub(rf"(?<!\d){year}(?!\d)", " ", text, count=1)
        place = re.search(r"(?<![\d:.])(\d{1,2})(?!\d|:\d|\s?[ap]\.?m|\s?h\s?\d)", rest)
        if place is None:
            return None
        day = int(place[1])
        rest = rest[: place.start()] + " " + rest[place.end() :].removeprefix(".")
    try:
        found = dt.date(year, month, day)
    except ValueError:
        return None
    return (found, rest) if FIRST_YEAR <= year <= LAST_YEAR else None


def _parse_month(word: str) -> int | None:
    fits = [stem for stem in _MONTH_BY_STEM if word.startswith(stem)]
    return _MONTH_BY_STEM[max(fits, key=len)] if fits else None


def _convert_to_new_york(local: dt.datetime, text: str, notes: list[str]) -> np.datetime64:
    offset, zone = _OFFSET_PATTERN.search(text), _ZONE_PATTERN.search(text)
    if offset:
        sign = -1 if offset[1] == "-" else 1
        hours = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0)) * sign
    elif zone and zone[1] in _HOURS_FROM_UTC:
        hours = dt.timedelta(hours=_HOURS_FROM_UTC[zone[1]])
    else:
        if not zone:
            notes.append("the stamp has no time zone: read as New York time")
        return np.datetime64(local, "m")
    if abs(hours) > dt.timedelta(hours=14):
        notes.append("the stamp's time zone does not exist: read as New York time")
        return np.datetime64(local, "m")
    there = convert_to_new_york((local - hours).replace(tzinfo=dt.UTC))
    if there != local:
        notes.append(f"the stamp's time zone is not New York's: {local} there is {there} here")
    return np.datetime64(there, "m")


def parse_as_of(as_of: object) -> Stamp:
    """A caller's ``as_of``: ISO text, a datetime or a date; New York time unless it has a zone.

    Raises:
        ChainError: If it is not a moment.
    """
    value: Any = _parse_text(as_of.strip()) if isinstance(as_of, str) else as_of
    if isinstance(value, Stamp):
        return value
    if isinstance(value, np.datetime64):
        whole_days = np.datetime_data(value.dtype)[0] in ("D", "W", "M", "Y")
        value = value.astype("datetime64[D]" if whole_days else "datetime64[us]").item()
    if not isinstance(value, dt.date) or not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ChainError(
            f"as_of = {as_of!r} is no moment from {FIRST_YEAR} to {LAST_YEAR}: give that of the "
            "quotes, such as as_of='2023-02-07T16:15' (New York time)"
        )
    if not isinstance(value, dt.datetime):
        return Stamp(np.datetime64(value, "m"), False)
    return Stamp(np.datetime64(convert_to_new_york(value), "m"), True)


def _parse_text(text: str) -> Stamp | dt.date | None:
    for read in (dt.date.fromisoformat, dt.datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    return parse_stamp(text)


def quote_moment(
    stamp: Stamp, calendar: ExchangeCalendar = NYSE
) -> tuple[np.datetime64, tuple[str, ...]]:
    """The moment of the quotes in seconds that a stamp means, and what was assumed about it.

    Raises:
        ChainError: For a day alone where quotes are made around the clock.
    """
    if calendar == ALWAYS and not stamp.timed:
        day = stamp.moment.astype("datetime64[D]")
        raise ChainError(
            f"{day} has no time of day, and around the clock no quotes are the last: give as_of "
            f"with one, such as as_of='{day}T16:00'",
            Remedy("as_of", f"{day}T16:00"),
        )
    moment, note = moment_of(stamp.moment, timed=stamp.timed, calendar=calendar)
    return moment, (*stamp.notes, *([note] if note else []))


def given_moment(
    as_of: object, calendar: ExchangeCalendar = NYSE
) -> tuple[np.datetime64, tuple[str, ...], tuple[str, ...]]:
    """The moment that a caller gave, what was assumed about it, and a sentence if none is quoted.

    A time of day is never moved; a day alone means its last quotes.

    Raises:
        ChainError: If it is not a moment.
    """
    stamp = parse_as_of(as_of)
    if not stamp.timed:
        return *quote_moment(stamp, calendar), ()
    moment = stamp.moment.astype("datetime64[s]")
    if is_quoted(stamp.moment, calendar):
        return moment, stamp.notes, ()
    day = stamp.moment.astype("datetime64[D]")
    doubt = (
        f"as_of {stamp.moment} (New York) is outside of the quoting hours of {calendar.name} and "
        f"used as given: give the day alone, as_of='{day}', if these are the last quotes before "
        "it, or another calendar"
    )
    return moment, stamp.notes, (doubt,)


def require_calendar(name: str) -> ExchangeCalendar:
    """The calendar of that name; a ``ChainError`` if there is none."""
    if name not in CALENDARS:
        raise ChainError(f"calendar = {name!r} is not one of {', '.join(CALENDARS)}")
    return CALENDARS[name]


def contrast_moments(
    name: str, given: np.datetime64, said: np.datetime64, *, inferred: bool = False
) -> tuple[str, ...]:
    """A sentence if the moment that a caller gave is not the one that the source says.

    Args:
        name: Of the source.
        given: What the caller gave, which is used.
        said: What the source says.
        inferred: Whether the source says it through the latest trade or quote alone, which may be
            older than the moment itself.

    Raises:
        ChainError: If they are a day or more apart, and what was given is not merely later than
            the latest trade.
    """
    apart = abs(given - said)
    if apart < np.timedelta64(1, "m"):
        return ()
    days, rest = divmod(int(apart / np.timedelta64(1, "m")), MINUTES_PER_DAY)
    gap = f"{days} day{'s' * (days > 1)}" if days else f"{rest // 60} h {rest % 60:02d} min"
    moments = (moment.astype("datetime64[m]") for moment in (given, said))
    told = "{0}: as_of is {2}, and the file says {3}: {1} apart".format(name, gap, *moments)
    if days and (given < said or not inferred):
        raise ChainError(f"{told}; leave as_of out, or correct the stamp in the file")
    return (f"{told}; as_of is used",)
