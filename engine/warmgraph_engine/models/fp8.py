"""Weights as 8-bit floating point: a byte for each number (e4m3fn), and a scale for each row.

A row of a matrix is divided by its scale, which takes its largest number to the largest there is,
448, and rounded to nearest, ties to even. All of it is arithmetic of IEEE 754 in float32, so that
every machine makes the same bytes of the same weights.

e4m3fn is torch.float8_e4m3fn (https://arxiv.org/abs/2209.05433): a sign, 4 bits of exponent, 3 of
mantissa, no infinity.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

DTYPE = "float8_e4m3fn"

LARGEST = np.float32(448)

_NAN = 0x7F

_SMALLEST_SCALE = np.finfo(np.float32).tiny
"""For rows of zeros, which nothing must be divided by, and of numbers that no model has."""


def quantize_rows(
    values: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(bytes of shape (rows, columns), scales of shape (rows,)) of a float32 matrix.

    A row that holds NaN or infinity has such a scale too, and so gives no number either.
    """
    with np.errstate(invalid="ignore"):  # infinity divided by itself
        scales = np.maximum(np.abs(values).max(axis=1) / LARGEST, _SMALLEST_SCALE)
        bits = (values / scales[:, np.newaxis]).view(np.uint32)
    # The upper half of a number tells its byte, if its last bit says whether anything follows: a
    # number between two ties stays between them.
    followed = (bits & np.uint32(0xFFFF)) != 0
    bits >>= 16
    bits |= followed
    codes: NDArray[np.uint8] = _bytes_of_upper_halves().take(bits.astype(np.intp))
    return codes, scales


def dequantize_rows(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the bytes of each row stand for, in float32."""
    with np.errstate(invalid="ignore"):  # zero times infinity
        result: NDArray[np.float32] = numbers()[codes] * scales[:, np.newaxis]
    return result


@cache
def numbers() -> NDArray[np.float32]:
    """What each of the 256 bytes stands for, without a scale."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    # Exponent 0 is that of 1 without the leading one.
    magnitudes = np.ldexp((exponents > 0) + mantissas / 8, np.maximum(exponents, 1) - 7)
    signed = np.where(codes & 0x80, -magnitudes, magnitudes)
    result: NDArray[np.float32] = signed.astype(np.float32)
    result[codes & _NAN == _NAN] = np.nan
    return result


@cache
def _bytes_of_upper_halves() -> NDArray[np.uint8]:
    """The nearest byte of each float32 whose lower 16 bits are zero, by its upper ones."""
    values = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    magnitudes = numbers()[:_NAN]
    ties = (magnitudes[:-1] + magnitudes[1:]) / 2
    below = np.searchsorted(ties, np.abs(values), side="left")
    at_or_below = np.searchsorted(ties, np.abs(values), side="right")
    nearest = np.where(below % 2, at_or_below, below)  # they differ at a tie: the even one
    codes = np.where(np.isfinite(values), nearest, _NAN)
    return (codes | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
