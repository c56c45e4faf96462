"""What the device keeps for each slot, for draws that change logits: written when a sequence gets
the slot, and counted on by the steps themselves (kernels/draw.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from cuda.bindings import driver as cuda
from numpy.typing import NDArray

from warmgraph_engine.backends.cuda import quick
from warmgraph_engine.backends.cuda.driver import Device, check, wait_for
from warmgraph_engine.backends.cuda.layout import IN_PROMPT
from warmgraph_engine.backends.cuda.memory import Addresses, PinnedMemory
from warmgraph_engine.step import SlotCounts

ROWS = 16
"""Rows of pinned memory that are on their way at a time; whoever needs one more waits for the
steps before it."""


def bias_row(bias: Mapping[int, float], vocabulary: int) -> NDArray[np.float32]:
    row = np.zeros(vocabulary, np.float32)
    row[list(bias)] = list(bias.values())
    return row


def counts_row(counts: SlotCounts, vocabulary: int) -> NDArray[np.int32]:
    """Occurrences in the output, with IN_PROMPT for what the prompt has."""
    output = np.asarray(counts.output, np.int64)
    row = np.bincount(output, minlength=vocabulary).astype(np.int32)
    row[np.asarray(counts.prompt, np.int64)] |= IN_PROMPT
    return row


class DeviceSlotRows:
    """Rows of `slots.bias` and `slots.counts`, in the order of the stream."""

    def __init__(self, device: Device, addresses: Addresses, *, vocabulary: int) -> None:
        self._device, self._addresses, self._vocabulary = device, addresses, vocabulary
        self._bytes = 4 * vocabulary
        self._memory = PinnedMemory(device, ROWS * self._bytes)
        flag = cuda.CUevent_flags.CU_EVENT_BLOCKING_SYNC.value
        offsets = range(0, self._memory.size, self._bytes)
        self._rows = cycle([(offset, check(cuda.cuEventCreate(flag))) for offset in offsets])

    def set_bias(self, slot: int, bias: Mapping[int, float]) -> None:
        self._send("slots.bias", slot, bias_row(bias, self._vocabulary))

    def set_counts(self, slot: int, counts: SlotCounts) -> None:
        self._send("slots.counts", slot, counts_row(counts, self._vocabulary))

    def _send(self, region: str, slot: int, row: NDArray[np.float32] | NDArray[np.int32]) -> None:
        offset, sent = next(self._rows)
        wait_for(sent)
        self._memory.array(row.shape, row.dtype.name, offset)[:] = row
        target = self._addresses[region] + slot * self._bytes
        source = self._memory.address + offset
        check(quick.cuMemcpyHtoDAsync(target, source, self._bytes, self._device.stream))
        check(quick.cuEventRecord(sent, self._device.stream))
