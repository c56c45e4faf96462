"""The parameters of launches in host memory, as the driver reads them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

from warmgraph_engine.backends.base import ImageError

Parameter = tuple[str, str | int | float]
"""Kind and value, see document.py."""

_SLOT_BYTES = 8
"""For each parameter, whatever its size: the driver reads as much of it as the kernel declares."""

_I32 = (1 << 32) - 1


class Words(dict[Parameter, int]):
    """What lies in a parameter's slot. A model's graphs have 50,000 parameters and few different
    ones, so each is made once.

    Raises ImageError for an address, KeyError for a kind or a region that there is none of;
    TypeError, OverflowError or struct.error for a value that is not of its kind.
    """

    def __init__(self, regions: Mapping[str, int]) -> None:
        """`regions` gives addresses."""
        self._regions = regions

    def __missing__(self, parameter: Parameter) -> int:
        kind, value = parameter
        if kind == "f32":
            # Not kept: -0.0 would be found as 0.0.
            return int.from_bytes(struct.pack("<f", value), "little")
        self[parameter] = word = self._word(kind, value)
        return word

    def _word(self, kind: str, value: Any) -> int:
        if kind == "region":
            return self._regions[value]
        if kind == "i32":
            return int(value & _I32)
        if kind != "address":
            raise KeyError(kind)
        if value != 0:
            # It would mean something in the process that wrote it, if in any.
            raise ImageError(f"has an unusable node: it holds the address {value}")
        return 0


class Parameters:
    """Of many launches, in one piece of memory that lives as long as this object."""

    def __init__(self, launches: Sequence[Sequence[Parameter]], words: Words) -> None:
        self._values = array("Q", [words[each] for each in chain.from_iterable(launches)])
        first, count = self._values.buffer_info()
        self._pointers = array("Q", range(first, first + _SLOT_BYTES * count, _SLOT_BYTES))
        table = self._pointers.buffer_info()[0]
        places = accumulate(map(len, launches), initial=0)
        self.addresses = [table + _SLOT_BYTES * place for place in places][:-1]
        """For each launch, of its array of pointers to its parameters."""
