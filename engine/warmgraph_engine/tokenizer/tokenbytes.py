"""The bytes that a token stands for, for log-probabilities: a token may be part of a character.

Two forms are in use: GPT-2's byte-level alphabet (each byte one printable character), and
SentencePiece's pieces with `<0x…>` tokens for single bytes.
"""

from __future__ import annotations

import re

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
SENTENCEPIECE_SPACE = "▁"


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's bytes_to_unicode, inverted: printable Latin-1 stands for itself, the other 68 bytes
    are numbered from 256 upwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


_ALPHABET = byte_level_alphabet()


def byte_level(token: str) -> bytes:
    """Of a byte-level token. A special token is written in plain characters outside the
    alphabet's range, such as a space: then it stands for itself."""
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def sentencepiece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    if byte:
        return bytes([int(byte[1], 16)])
    return token.replace(SENTENCEPIECE_SPACE, " ").encode()
