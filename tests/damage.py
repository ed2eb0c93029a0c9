"""Chain files of every layout, and ways to damage them: the vocabulary of the fuzzers."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

import listed

SMALL = listed.market(
    (("SPXW", dt.date(2023, 2, 17)), ("SPX", dt.date(2023, 2, 17)), ("SPX", dt.date(2023, 12, 15))),
    strikes=11,
)
FILES = {
    "new": listed.exchange(SMALL).encode(),
    "old": listed.exchange(SMALL, listed.OLD_TOP).encode(),
    "no header": listed.exchange(SMALL, top="", header="").encode(),
    "yahoo": listed.yahoo(SMALL).encode(),
    "long": listed.long(SMALL).encode(),
    "tidy": listed.tidy(SMALL).encode(),
    "parquet": listed.parquet(SMALL),
}
TOKENS = [
    *("nan", "NaN", "-1", "0", "-0", "1e308", "1e-320", "1e999", "inf", "-inf", "", " ", "N/A"),
    *("9" * 40, "1,234.5", "1.234,5", "12/31/9999", "0000-00-00", "2023-02-30", "31.12.2023"),
    *(
        "SPXW230217C04000000",
        "SPX999999P00000000",
        "SPY230217C00400000",
        "C",
        "put",
        "AM",
        '"',
        "'",
    ),
    *("Date: 9 декабря 2023 г. в 13:49 GMT-5", "٣٫١٤", "－５", "\u202e", "🙂", "\ufeff", "a" * 300),
]


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(0, len(data))]


def drop_the_top(data: bytes, rng: np.random.Generator) -> bytes:
    return data[rng.integers(0, len(data)) :]


def shuffle_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def repeat_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(lines[i] for i in np.sort(rng.integers(0, len(lines), 2 * len(lines))))


def flip_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    array = np.frombuffer(data, dtype=np.uint8).copy()
    places = rng.integers(0, array.size, rng.integers(1, 40))
    array[places] = rng.integers(0, 256, places.size)
    return array.tobytes()


def swap_fields(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.decode("utf-8", errors="replace").split("\n")
    for _ in range(rng.integers(1, 30)):
        i = int(rng.integers(0, len(lines)))
        fields = lines[i].split(",")
        fields[int(rng.integers(0, len(fields)))] = TOKENS[int(rng.integers(0, len(TOKENS)))]
        lines[i] = ",".join(fields)
    return "\n".join(lines).encode()


def fill_a_column(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.decode("utf-8", errors="replace").split("\n")
    column, token = int(rng.integers(0, 22)), TOKENS[int(rng.integers(0, len(TOKENS)))]
    filled = [line.split(",") for line in lines]
    for fields in filled:
        if len(fields) > column:
            fields[column] = token
    return "\n".join(",".join(fields) for fields in filled).encode()


def other_locale(data: bytes, rng: np.random.Generator) -> bytes:
    text = data.decode("utf-8", errors="replace")
    delimiter = [";", "\t", "|", ", "][int(rng.integers(0, 4))]
    text = text.replace(",", "\0").replace(".", [",", "."][int(rng.integers(0, 2))])
    encoding = ["utf-8", "utf-16", "latin-1", "cp1251"][int(rng.integers(0, 4))]
    return text.replace("\0", delimiter).encode(encoding, errors="replace")


def delete_spans(data: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 6)):
        start = int(rng.integers(0, max(len(data), 1)))
        data = data[:start] + data[start + int(rng.integers(0, 200)) :]
    return data


def noise(data: bytes, rng: np.random.Generator) -> bytes:
    return rng.integers(0, 256, rng.integers(0, 4_000), dtype=np.uint8).tobytes()


def nothing(data: bytes, rng: np.random.Generator) -> bytes:
    return data


Damage = Callable[[bytes, np.random.Generator], bytes]
DAMAGES: list[Damage] = [
    *(truncate, drop_the_top, shuffle_lines, repeat_lines, flip_bytes, swap_fields),
    *(fill_a_column, other_locale, delete_spans, noise, nothing),
]


def pack(data: bytes, rng: np.random.Generator) -> bytes:
    """The file in an archive, which no reader unpacks, or behind the first bytes of one."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("chain.csv", data)
    packed = [
        *(gzip.compress(data), bz2.compress(data), lzma.compress(data), zlib.compress(data)),
        *(archive.getvalue(), b"x\x01" + data, b"\x28\xb5\x2f\xfd" + data, b"PAR1" + data),
    ]
    return packed[int(rng.integers(0, len(packed)))]


def damage_file(seed: int) -> bytes:
    """One file, damaged up to three times; one in twelve is packed."""
    rng = np.random.default_rng(seed)
    data = list(FILES.values())[seed % len(FILES)]
    for i in rng.integers(0, len(DAMAGES), rng.integers(1, 4)):
        data = DAMAGES[i](data, rng) if data else data
    return pack(data, rng) if rng.random() < 1.0 / 12.0 else data
