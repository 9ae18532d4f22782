"""Base45 (RFC 9285): two bytes as three of the 45 characters that QR packs into 5.5 bits each.

One text for one sequence of bytes: what does not come out of :func:`encode` again is refused. The last character is
never the space, which scanners like to cut off: it is at most ``W`` after two bytes, and at most ``5`` after one.
"""

from __future__ import annotations

from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
_VALUES: Final = {character: value for value, character in enumerate(ALPHABET)}
_BASE: Final = 45
_PAIR: Final = 3
_PAIR_MAX: Final = 0xFFFF
_BYTE_MAX: Final = 0xFF


def encode(raw: bytes) -> str:
    """The bytes as text."""
    out: list[str] = []
    for index in range(0, len(raw) - 1, 2):
        rest, low = divmod(raw[index] << 8 | raw[index + 1], _BASE)
        high, middle = divmod(rest, _BASE)
        out += (ALPHABET[low], ALPHABET[middle], ALPHABET[high])
    if len(raw) % 2:
        high, low = divmod(raw[-1], _BASE)
        out += (ALPHABET[low], ALPHABET[high])
    return "".join(out)


def decode(text: str) -> bytes:
    """The bytes that the text stands for.

    Raises:
        ValueError: a character that is none of the 45, a length that no bytes have, a group that is too large.
    """
    try:
        values = [_VALUES[character] for character in text]
    except KeyError as stranger:
        raise ValueError(f"the character {stranger.args[0]!r} is not one of base45") from None
    out = bytearray()
    whole = len(values) - len(values) % _PAIR
    for index in range(0, whole, _PAIR):
        pair = values[index] + values[index + 1] * _BASE + values[index + 2] * _BASE * _BASE
        if pair > _PAIR_MAX:
            raise ValueError(f"the group {text[index : index + _PAIR]!r} stands for more than two bytes")
        out += pair.to_bytes(2, "big")
    left = values[whole:]
    if len(left) == 1:
        raise ValueError(f"no bytes have {len(text)} characters of base45")
    if left:
        byte = left[0] + left[1] * _BASE
        if byte > _BYTE_MAX:
            raise ValueError(f"the group {text[whole:]!r} stands for more than one byte")
        out.append(byte)
    return bytes(out)
