"""The files of the pages: scripts, styles and vendored libraries, under an address that changes with them.

All of them stand below one folder whose name is made of their contents, so a browser may keep them for ever, and one
script finds another by a relative path.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from simulator.console.access import PREFIX
from simulator.service.answers import Answer, Header

TYPES: Final = {
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
}
_SHARED: Final = ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt")
"""The reports have these; the console serves the same files."""
_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"public, max-age=31536000, immutable"),
    (b"x-content-type-options", b"nosniff"),
    (b"vary", b"accept-encoding"),
)


@cache
def read_files() -> dict[str, bytes]:
    """Every file: its path below the folder -> its contents."""
    found = dict(_read_folder(files("simulator.console") / "static", ""))
    shared = files("simulator.report_parts") / "static"
    return found | {f"vendor/{name}": (shared / name).read_bytes() for name in _SHARED}


def _read_folder(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            found += _read_folder(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in TYPES:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


@cache
def version() -> str:
    """Stands for the contents of all files."""
    digest = hashlib.sha256()
    for path, content in sorted(read_files().items()):
        digest.update(b"%s\0%d\0%s" % (path.encode(), len(content), content))
    return digest.hexdigest()[:16]


def address_of(path: str) -> str:
    """Where a file is, such as ``/console/static/5e1c.../core/main.js``."""
    return f"{PREFIX}static/{version()}/{path}"


def answer_file(path: str, *, gzipped: bool) -> Answer | None:
    """A file; None when there is none."""
    content = read_files().get(path)
    if content is None:
        return None
    kind: Header = (b"content-type", TYPES[path.rpartition(".")[2]])
    if not gzipped:
        return Answer(200, content, _HEADERS, kind)
    return Answer(200, _gzipped(path), (*_HEADERS, (b"content-encoding", b"gzip")), kind)


@cache
def _gzipped(path: str) -> bytes:
    return gzip.compress(read_files()[path], 9, mtime=0)
