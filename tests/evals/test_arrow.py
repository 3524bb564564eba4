"""Rows of Arrow streams, on streams that pyarrow 26.0.1 wrote from rows of our own."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from engine import errors
from evals.arrow import arrow_rows

ROWS = [
    {"question": "What is 1 + 1?", "choices": ["two", "zwölf"], "answer": 0, "small": -3},
    {"question": "", "choices": [], "answer": -5000000000, "small": 7},
    {"question": "Où ?\n", "choices": ["ici", "là", "日本"], "answer": 2, "small": 0},
]

# zlib, then base64. `good` holds ROWS in batches of two and one.
STREAMS = {
    "good": (
        "eNqtVD9Lw1AQv9ckTQxBMoh0cHij4NJu3ZrBwc1urpYSSSBt0UQKfhGXDi5unQXn+gFcBAfnfghB413eezaelSp4cO/er/e7vy+0"
        "LMsyEgAhkPgQQBMc8PCGImzEgMjD09an0hfUArWr8SHmwYAG5Wnp30gc1Hw0yDK0jxUHBOUpanxZ4zdRB+N8Gl9Q3QDVrepSXITH"
        "XMUFO3jf03HYPhB2UYfJJB3GOcyQ96y4Du+JbFrEI7o/ICfEaA8ru9W0od6Fiqv3Rn2cX8Z5kU7GKo/96cM0ZSJUHyQB7OpNBlVW"
        "sOyqhwSM+IiDaqu+3ifVa8BKAvhZjC/UdltbyXiS8dvM32b+SNstbfuM32d1T5nf4PocDsPwD9jMbOY+SQaFTHPZkQey01vF1OOs"
        "2lzFdHI1XdxlZ9+Svj6941u+uX9716MN7yp++a4es022b2DY8FrM32K8fVa7y/hdli9ifoMFe1fBeBxbG/xizQ5o5uPFvez5X3NY"
        "2kczpMM0W9wsr2+Xs/m676NU/zXwAZFFXMk="
    ),
    "null": (
        "eNpdTkEOgzAMc6GwCvXAASEOO+xBfAJp96Fd9pX9NjghZVMtNY6TNLGIyA5ghGJARo8OiRkRIjWoEmP0yDLfZH8m1nrcbGr0HaFT"
        "vvssnD+v9/PMo2mela/vUWTMfjnbNrQRC+mBgoE6mwv1trrnBj+0f3lwTtf+E0vVL3lT1et+0Zuz+lc+ALSkEcg="
    ),
    "dictionary": (
        "eNqNTzkOwjAQHCfOIeTCRYRS8hBKSj4Bokei4QuUPIMn8Dsz611DgojERJvx3rMppXQHECFYIaBFg54vwnl40pM1wo425NqRFS06"
        "VkdGtNc1ktvRNjQPhfD1fDnJu+cnEfmH7Adal30ZoH26kyvTw/Yh1w+mLOReVD7nRsurYp1dbhlZ6S2zt3iFD2osIxhH42mf+/J/"
        "xQ9HZbnjNrtjPb+j9vmG+J4y17213FRr9Yfuoqde0Fkg+oRf8fMciw=="
    ),
    "compressed": (
        "eNp1UDkOwkAMnCWbQ2gLihRBIJSCAtHwBXgAf0gkehANj6DJU2jo+Rhaxo4hSIiR7LG9k/FmY4zxBGACwRgBGVIUrAjn2YNdwewt"
        "c8wo9ZuSswy5qibm4VLhuWlhfDmeD33ttefaeDMfQUBlm4O6IfHqscWAgAV3+I+mYSwZld1pQEZNztxfKMF/TI1r49nXmfvxhb6B"
        "YHXfPOti1zfdoHqXct502PNd2tbhun6MdC7/LfwCgkkbZw=="
    ),
    "float": (
        "eNp1jsEKwjAMhv92tZbRww5j7OiDCL6L4FEPguAj+Mi7xT8x0jHYB0nzt0n6i4i8AQxQelRkHFBYkZCoQVWYk2deM0abGXmXcbSu"
        "wXeETs+T9yqZ8Xjdr7fnT+lMtpcIfi8f36dUTO6g2lZ0CbN5+NNTV3OjHs/uPaARsU9Z1WEz11gu6kurL2BqEyI="
    ),
    "unsigned": (
        "eNp1TssKg0AMnNXtdpE9eJDi0Q/p1wge7aFQ6Cf413ESI4rgQDY7eUxGROQPoIWiQUHCA5k/IkRykGW+0V+WGZ3tdKwlPG2qdY1Q"
        "aR58VpEYn988Tt+NZXaS3+R5WVxPUfByB8VUUUf05mFHQ17MjXp8u07AgQr3OPfCZQ8nrr40r1pOEfE="
    ),
}


def stream(name: str) -> bytes:
    return zlib.decompress(base64.b64decode(STREAMS[name]))


def test_rows_of_all_batches_in_their_order() -> None:
    assert arrow_rows(stream("good"), "data.arrow") == ROWS


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("null", "'word' holds 1 nulls"),
        ("dictionary", "a message of kind 2"),
        ("compressed", "compressed"),
        ("float", "'number' is of type 3"),
        ("unsigned", "integers of 16 bits, signed False"),
    ],
)
def test_what_is_not_read_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(errors.CorruptFile, match=why) as caught:
        arrow_rows(stream(name), f"{name}.arrow")
    assert str(caught.value).startswith(f"{name}.arrow: ")


def test_a_stream_cut_at_any_byte_is_refused() -> None:
    good = stream("good")
    for length in range(len(good)):
        with pytest.raises(errors.CorruptFile, match="no readable Arrow stream"):
            arrow_rows(good[:length], "cut")


def test_damage_anywhere_gives_rows_or_the_typed_error() -> None:
    good = stream("good")
    refused = 0
    for at in range(0, len(good) - 4, 3):
        for value in (0xFFFFFFFF, 0x7FFFFFFF, 0, 9):
            damaged = bytearray(good)
            struct.pack_into("<I", damaged, at, value)
            try:
                arrow_rows(bytes(damaged), "damaged")
            except errors.CorruptFile:
                refused += 1
    assert refused > 500


def test_a_batch_without_a_schema_is_refused() -> None:
    good = stream("good")
    size = struct.unpack_from("<I", good, 4)[0]
    with pytest.raises(errors.CorruptFile, match="its 0 columns"):
        arrow_rows(good[8 + size :], "headless")


def test_another_file_is_refused() -> None:
    with pytest.raises(errors.CorruptFile, match="no message starts at byte 0"):
        arrow_rows(b"PK\x03\x04 and so on, which is a zip", "x.zip")
