"""How much a Parquet file unpacks to, from its own headers, before anything is unpacked.

A page of a column says how long it is packed and unpacked; readers allocate what it says. Headers
are records of Thrift's compact protocol (https://thrift.apache.org, "compact protocol"), of which
this reads the plain types, lists and records.
"""

from __future__ import annotations

from typing import Any

from arbiter.files.limits import DESCRIPTION

_MAGIC = b"PAR1"
_MAX_DEPTH = 32  # records inside records
# Fields of the file's description, of a row group, of a column, of its data, and of a page.
_ROW_GROUPS, _COLUMNS, _DATA = 4, 1, 3
_PACKED_SIZE, _DATA_START, _DICTIONARY_START = 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3


class ParquetDamageError(ValueError):
    """Headers that contradict each other, or are cut off."""


class _Reader:
    """Reads records of the compact protocol from a place in ``content`` on."""

    def __init__(self, content: bytes, place: int) -> None:
        self.content, self.place = content, place

    def read_byte(self) -> int:
        if not 0 <= self.place < len(self.content):
            raise ParquetDamageError("its headers are cut off")
        self.place += 1
        return self.content[self.place - 1]

    def skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.content):
            raise ParquetDamageError("its headers are cut off")

    def read_number(self) -> int:
        found = shift = 0
        while True:
            byte = self.read_byte()
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found
            if shift > 63:
                raise ParquetDamageError("a number in its headers has no end")

    def read_integer(self) -> int:
        found = self.read_number()
        return (found >> 1) ^ -(found & 1)

    def read_record(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        field = 0
        while (head := self.read_byte()) != 0:
            step = head >> 4
            field = field + step if step else self.read_integer()
            found[field] = self.read_value(head & 0x0F, depth)
        return found

    def read_value(self, kind: int, depth: int) -> Any:
        """Numbers, lists and records; None for what has no number."""
        if depth > _MAX_DEPTH:
            raise ParquetDamageError("its headers are nested without end")
        match kind:
            case 1 | 2:  # true and false are in the kind
                pass
            case 3 | 7:  # a byte, or a float
                self.skip(1 if kind == 3 else 8)
            case 8:  # text
                self.skip(self.read_number())
            case 4 | 5 | 6:
                return self.read_integer()
            case 9 | 10:
                head = self.read_byte()
                count = head >> 4 if head >> 4 != 15 else self.read_number()
                inner = head & 0x0F
                if inner in (1, 2):  # truth values take a byte each in a list
                    inner = 3
                return [self.read_value(inner, depth + 1) for _ in range(count)]
            case 12:
                return self.read_record(depth + 1)
            case _:
                raise ParquetDamageError(f"its headers have a type {kind} that is not known")
        return None


def measure_parquet(content: bytes) -> int:
    """Bytes that the pages of a Parquet file unpack to, as their headers say.

    Raises:
        ParquetDamageError: If the headers cannot be read.
    """
    if len(content) < 12 or content[-4:] != _MAGIC:
        raise ParquetDamageError("it is cut off")
    length = int.from_bytes(content[-8:-4], "little")
    DESCRIPTION.require(length, "it", ParquetDamageError)
    about = _Reader(content, len(content) - 8 - length).read_record()
    total = 0
    for group in _list_records(about, _ROW_GROUPS):
        for column in _list_records(group, _COLUMNS):
            data = column.get(_DATA)
            if isinstance(data, dict):
                total += _measure_column(content, data)
    return total


def _measure_column(content: bytes, data: dict[int, Any]) -> int:
    starts = [data[name] for name in (_DATA_START, _DICTIONARY_START) if data.get(name)]
    size = data.get(_PACKED_SIZE)
    if not starts or not all(isinstance(number, int) for number in (*starts, size)):
        raise ParquetDamageError("a column does not say where it is")
    place = min(starts)
    end = place + size
    if not 0 <= place <= end <= len(content):
        raise ParquetDamageError("a column lies outside the file")
    total = 0
    while place < end:
        reader = _Reader(content, place)
        page = reader.read_record()
        packed, unpacked = page.get(_PAGE_PACKED), page.get(_PAGE_UNPACKED)
        if not (isinstance(packed, int) and isinstance(unpacked, int) and packed >= 0 <= unpacked):
            raise ParquetDamageError("a page does not say how long it is")
        total += unpacked
        place = reader.place + packed
    return total


def _list_records(record: dict[int, Any], name: int) -> list[dict[int, Any]]:
    found = record.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
