"""Takes the debugging information out of a compiled library, as ``strip --strip-debug`` does, for any architecture.

Some wheels are mostly that (uvloop: 11.7 of 13.6 MB). What a program loads stays byte for byte, and so do the symbols.
Done here and not by ``strip``, which each architecture has one of, whose output hangs on its version: the same wheel
must give the same package everywhere.

Source: System V ABI, "ELF Header", "Sections", "Program Header"; 64 bit, little-endian. Anything else stays as it is.
"""

from __future__ import annotations

import struct
from typing import Final

_MAGIC: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_SHOFF_AT: Final = 40
_NOBITS: Final = 8
_DEBUG: Final = (b".debug_", b".zdebug_")


def without_debug(data: bytes) -> bytes:
    """The library without the contents of its debugging sections; ``data`` itself where there are none.

    Args:
        data: of the file.
    """
    if not data.startswith(_MAGIC):
        return data
    _, _, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, names_at = _HEADER.unpack_from(data)
    sections = [list(_SECTION.unpack_from(data, shoff + shentsize * at)) for at in range(shnum)]
    names = sections[names_at][4]
    debug = {at for at, section in enumerate(sections) if data.startswith(_DEBUG, names + section[0])}
    if not debug:
        return data
    programs = [_PROGRAM.unpack_from(data, phoff + phentsize * at) for at in range(phnum)]
    loaded = max([phoff + phentsize * phnum, *(program[2] + program[5] for program in programs)])
    out = bytearray(data[:loaded])
    for at in sorted(range(shnum), key=lambda each: sections[each][4]):
        kind, offset, size, alignment = (sections[at][field] for field in (1, 4, 5, 8))
        if offset < loaded or kind in {0, _NOBITS}:
            continue
        out += bytes(-len(out) % max(1, alignment))
        sections[at][4] = len(out)
        if at in debug:
            sections[at][1], sections[at][5] = _NOBITS, 0
        else:
            out += data[offset : offset + size]
    out += bytes(-len(out) % 8)
    struct.pack_into("<Q", out, _SHOFF_AT, len(out))
    for section in sections:
        out += _SECTION.pack(*section)
    return bytes(out)
