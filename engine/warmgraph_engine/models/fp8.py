"""Weights as 8-bit floating point: a byte for each number (e4m3fn), and a scale for each row.

A row of a matrix is divided by its scale, the smallest power of two that takes its largest number
to 448 at most, the largest there is, and rounded to nearest, ties to even. A scale that takes it to
448 itself would keep the largest number as it is, and the others no closer than this one does:
they have as many bits whatever they are divided by. A power of two is taken off the exponents, so
it is all done on the bits, for which a bfloat16 needs no wider type, and every machine makes the
same bytes of the same weights.

e4m3fn is torch.float8_e4m3fn (https://arxiv.org/abs/2209.05433): a sign, 4 bits of exponent, 3 of
mantissa, no infinity.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

DTYPE = "float8_e4m3fn"

_NAN = 0x7F

# Bits of bfloat16: a sign, 8 bits of exponent, 7 of mantissa.
_MANTISSA_BITS = 7
_MAGNITUDE = np.uint16(0x7FFF)
_INFINITY = 0x7F80
_ONE = 127 << _MANTISSA_BITS
_LARGEST = _ONE + (8 << _MANTISSA_BITS) + 0x60
"""448."""
_SMALLEST_NORMAL = _ONE - (6 << _MANTISSA_BITS)
"""What has the first mantissa with a leading one, 2**-6. Below it, the steps stay as they are."""
_ZERO = _ONE - (11 << _MANTISSA_BITS)
"""Less than half of the smallest number, 2**-9."""

_SMALLEST_EXPONENT = -100
"""Of a scale: for rows of zeros, and of numbers that no model has. They become zeros, among them
all that bfloat16 has no leading one for."""


def quantize_rows(
    values: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(bytes of shape (rows, columns), scales of shape (rows,)) of a float32 matrix.

    A row that holds NaN or infinity has NaN as its scale, and so gives no number either.
    """
    bits = values.view(np.uint32)
    # The upper half of a number tells its byte, if its last bit says whether anything follows: a
    # number between two ties stays between them.
    followed = (bits & np.uint32(0xFFFF)) != 0
    return quantize_bfloat16_rows((bits >> np.uint32(16)).astype(np.uint16) | followed)


def quantize_bfloat16_rows(
    bits: NDArray[np.uint16],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """As quantize_rows, of the bits of a bfloat16 matrix."""
    bits = np.ascontiguousarray(bits)
    magnitudes = bits & _MAGNITUDE
    largest = magnitudes.max(axis=1).astype(np.int16)
    # Rounded up, as the division of an exponent and a mantissa that are one number.
    exponents = np.maximum(-((_LARGEST - largest) >> _MANTISSA_BITS), _SMALLEST_EXPONENT)
    scales = np.where(largest < _INFINITY, np.ldexp(np.float32(1), exponents), np.float32(np.nan))
    # From here on the numbers are divided by their scales, and counted from the smallest normal
    # one, which has the byte 8.
    scaled = magnitudes.view(np.int16)
    scaled -= ((exponents << _MANTISSA_BITS) + _SMALLEST_NORMAL).astype(np.int16)[:, np.newaxis]
    low = np.flatnonzero(scaled < 0)
    low_codes = _low_codes().take(scaled.reshape(-1)[low] - _ZERO + _SMALLEST_NORMAL, mode="clip")
    # To nearest, ties to even: the four bits that are dropped, half of them added before.
    odd = scaled >> 4
    odd &= 1
    odd += 7 + (8 << 4)
    scaled += odd
    scaled >>= 4
    codes = scaled.astype(np.uint8)
    codes.reshape(-1)[low] = low_codes
    codes |= (bits >> np.uint16(8)).astype(np.uint8) & np.uint8(0x80)
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
def _low_codes() -> NDArray[np.uint8]:
    """The nearest byte of each bfloat16 from _ZERO up to the smallest normal number."""
    bits = np.arange(_ZERO, _SMALLEST_NORMAL, dtype=np.uint32)
    codes: NDArray[np.uint8] = np.rint((bits << 16).view(np.float32) * 2**9).astype(np.uint8)
    return codes
