"""A reading's values in 32 bits, the same before the wire and after it.

JSON has one kind of number (RFC 8259, section 6): 21, 21.0 and 2.1e1 are the same value, and a double is what every
implementation can keep. So the digest is made of the names and of doubles. One alteration in 4,294,967,296 is missed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

from agent.wire.json_text import encode_json

_NUMBERS: Final = frozenset({int, float})


@lru_cache(maxsize=4096)
def _shape(names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[..., bytes], int]:
    """The names sorted, how their values are packed, and the checksum to begin with."""
    ordered = tuple(sorted(names))
    return ordered, struct.Struct(f"<{len(ordered)}d").pack, crc32(encode_json(ordered))


def digest_values(values: Mapping[str, Any]) -> int:
    """The digest of named numbers: 0 to 2**32 - 1, whatever their order.

    Args:
        values: named numbers, without the sequence number. What is no number counts as altered: it gets a digest that
            no numbers get on purpose.
    """
    names, pack, begin = _shape(tuple(values))
    if _NUMBERS.issuperset(map(type, values.values())):
        try:
            # -0.0 is written as 0 by some: the sum with 0.0 makes them one.
            return crc32(pack(*[values[name] + 0.0 for name in names]), begin)
        except OverflowError:
            pass
    return crc32(repr([values[name] for name in names]).encode("utf-8", "surrogatepass"), ~begin & 0xFFFFFFFF)


def digest_document(value: Any) -> int:
    """The digest of a JSON value: 0 to 2**32 - 1, whatever the order of its members and the spelling of its numbers."""
    return crc32(json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode())


def _plain(value: Any) -> Any:
    """The value with whole numbers as integers: ``21.0`` and ``21`` are the same number in JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
