"""A logged request as a line of a POSIX shell."""

from __future__ import annotations

import re
import shlex
from typing import Final

from agent.wire.secret import MASK
from simulator.service.request_log.entry import Entry

_OF_CURL: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect", "keep-alive"})
"""Headers that curl makes by itself."""
_NAME_BEFORE: Final = re.compile(r"([A-Za-z][\w-]*)\"?\s*[:=]\s*\"?$")
_WORD: Final = re.compile(r"[^A-Z0-9]+")
_VARIABLES: Final = {"x-secret-key": "SECRET_KEY", "authorization": "ACCESS_TOKEN", "x-api-key": "API_KEY"}


class CannotRepeatError(Exception):
    """Too little of the request was kept; says what is missing."""


def curl_line(entry: Entry, base_url: str) -> str:
    """The line. Where a secret was it has a shell variable, such as ``$SECRET_KEY``.

    Args:
        entry: what was sent.
        base_url: the service's, without a slash at the end.

    Raises:
        CannotRepeatError: the body is longer than what was kept, it is no text, or nobody could read the request.
    """
    check_whole(entry)
    words = ["curl", "--globoff", "--path-as-is"]
    if entry.method == "HEAD":
        words.append("--head")
    elif entry.method != ("POST" if entry.body else "GET"):
        words += ["-X", shlex.quote(entry.method)]
    query = entry.query.decode("latin-1")
    words.append(_quoted(f"{base_url}{entry.path}{'?' if query else ''}{query}"))
    given = {name.decode("latin-1").lower() for name, _ in entry.headers}
    for raw_name, raw_value in entry.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name not in _OF_CURL:
            words += ["-H", _quoted(f"{name}: {value}" if value else f"{name};", _VARIABLES.get(name, _variable(name)))]
    if entry.body:
        if "content-type" not in given:
            words += ["-H", "'content-type:'"]  # else curl says that it is a form
        words += ["--data-binary", _quoted(_text(entry))]
    return " ".join(words)


def check_whole(entry: Entry) -> None:
    """Raises :class:`CannotRepeatError` for a request of which too little was kept to send it again."""
    if not entry.method:
        raise CannotRepeatError("the connection refused it before anybody could read it")
    if entry.body_is_cut:
        raise CannotRepeatError(f"the log keeps the beginning of its body of {entry.body_bytes:,} bytes")


def _text(entry: Entry) -> str:
    try:
        text = entry.body.decode()
    except UnicodeDecodeError:
        raise CannotRepeatError("its body is no text in UTF-8") from None
    if "\0" in text:
        raise CannotRepeatError("its body holds a NUL, which no argument of a program can")
    if text.startswith("@"):
        raise CannotRepeatError("its body begins with @, which curl takes for the name of a file")
    return text


def _quoted(text: str, variable: str | None = None) -> str:
    """The text as one word of the shell; what was masked becomes a variable, which the shell fills in."""
    first, *others = text.split(MASK)
    word, before = shlex.quote(first) if first or not others else "", first
    for part in others:
        word += f'"${{{variable or _name_of(before)}}}"' + (shlex.quote(part) if part else "")
        before = part
    return word


def _name_of(before: str) -> str:
    found = _NAME_BEFORE.search(before)
    return _variable(found[1]) if found else "SECRET"


def _variable(name: str) -> str:
    return _WORD.sub("_", name.upper()).strip("_") or "SECRET"
