"""Parameters as the driver reads them: an array of pointers for each launch."""

from __future__ import annotations

import ctypes
import struct

import pytest

from warmgraph_engine.backends.base import ImageError
from warmgraph_engine.backends.cuda.parameters import Parameters, Words

REGIONS = {"work.x": 0x7F00_0000_0100, "host.tokens": 0x5500_0000_0000}


def words() -> Words:
    return Words(REGIONS)


def read(address: int, count: int) -> list[bytes]:
    """The eight bytes of each of a launch's parameters."""
    pointers = (ctypes.c_void_p * count).from_address(address)
    return [ctypes.string_at(pointer, 8) for pointer in pointers if pointer is not None]


def test_each_launch_finds_its_own_parameters() -> None:
    launches = [
        [("region", "work.x"), ("i32", -3), ("f32", 0.5)],
        [],
        [("address", 0), ("i32", 7), ("region", "host.tokens")],
    ]
    made = Parameters(launches, words())
    first, _, last = made.addresses
    assert read(first, 3) == [
        struct.pack("<Q", REGIONS["work.x"]),
        struct.pack("<i4x", -3),
        struct.pack("<f4x", 0.5),
    ]
    assert read(last, 3) == [
        bytes(8),
        struct.pack("<i4x", 7),
        struct.pack("<Q", REGIONS["host.tokens"]),
    ]


def test_the_sign_of_zero_is_kept() -> None:
    made = Parameters([[("f32", 0.0), ("f32", -0.0)]], words())
    assert read(made.addresses[0], 2) == [struct.pack("<f4x", 0.0), struct.pack("<f4x", -0.0)]


def test_a_graph_without_launches_has_no_parameters() -> None:
    assert Parameters([], words()).addresses == []


@pytest.mark.parametrize(
    ("parameter", "error"),
    [
        (("region", "work.y"), KeyError),
        (("i64", 1), KeyError),
        (("i32", "one"), TypeError),
        (("i32", 1.5), TypeError),
        (("f32", "one"), struct.error),
        (("f32", 1e39), OverflowError),
        (("region", 4), KeyError),
        (("address", "null"), ImageError),
    ],
)
def test_a_parameter_that_makes_no_sense_is_an_error(
    parameter: tuple[str, str | int | float], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Parameters([[parameter]], words())


@pytest.mark.parametrize("address", [REGIONS["work.x"], 1, -1])
def test_an_address_is_refused_even_one_that_is_right_here(address: int) -> None:
    with pytest.raises(ImageError, match=f"holds the address {address}"):
        Parameters([[("address", address)]], words())
