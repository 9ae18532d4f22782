"""What the answers of a server look like, each as one word for programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent.errors import InvalidMessage
from agent.frozen import dataclass
from agent.wire.pages import Page
from agent.wire.probe.line import NOT_JSON, Seen
from agent.wire.received_times import parse_any_time

_DEPTH_MAX: Final = 4
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:\.\d+)?"
_TIMES: Final = tuple(
    (name, re.compile(pattern, re.ASCII))
    for name, pattern in (
        ("rfc3339", rf"{_DAY}T{_CLOCK}Z"),
        ("offset", rf"{_DAY}[T ]{_CLOCK}[+-]\d\d:\d\d"),
        ("short_offset", rf"{_DAY}[T ]{_CLOCK}[+-]\d\d"),
        ("utc_word", rf"{_DAY}[T ]{_CLOCK} (?:UTC|GMT)"),
        ("minutes", rf"{_DAY}[T ]\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)"),
        ("rfc1123", rf"[A-Z][a-z]{{2}}, \d\d [A-Z][a-z]{{2}} \d{{4}} {_CLOCK} GMT"),
        ("naive", rf"{_DAY}[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?"),
    )
)
_TIME_NAME: Final = re.compile(r".*(_at|At|_time|Time|timestamp|Timestamp)")
TIME_WORDS: Final[Mapping[str, str]] = {
    "rfc3339": "RFC 3339 in UTC",
    "offset": "RFC 3339 with an offset",
    "short_offset": "with an offset of hours alone (+00)",
    "utc_word": "with the word UTC",
    "minutes": "without seconds",
    "rfc1123": "as HTTP dates (RFC 1123)",
    "naive": "without a zone",
    "epoch_s": "seconds since 1970",
    "epoch_ms": "milliseconds since 1970",
    "epoch_us": "microseconds since 1970",
    "epoch_ns": "nanoseconds since 1970",
    "other": "in another form that can be read",
    "unreadable": "in a form that cannot be read",
}
_EPOCHS: Final = (("epoch_s", 1e8, 1e11), ("epoch_ms", 1e11, 1e14), ("epoch_us", 1e14, 1e17), ("epoch_ns", 1e17, 1e20))
_PAGING_NAME: Final = re.compile(
    r"(?i)next|prev|cursor|page|pages|pagination|paging|offset|limit|total|has_more|hasmore|count|per_page|links?|_links"
)


@dataclass(frozen=True, slots=True)
class SeenTime:
    """A time in an answer.

    Attributes:
        form: a key of :data:`TIME_WORDS`.
        name: of its member.
        value: as it came.
    """

    form: str
    name: str
    value: Any


def list_shape(value: object, items: list[Any], word: str) -> str:
    """Where the items are: ``bare``, or the members that lead there, or a name that such a shape has.

    Args:
        value: the whole body.
        items: what :func:`~agent.wire.pages.read_page` found in it.
        word: the list's own name, such as ``devices``.
    """
    way = _way_to(value, items, 0)
    if way is None:
        return "by_id"
    if not way:
        return "bare"
    if way[0] == "_embedded":
        return "hal"
    if way == ("data",) and isinstance(value, dict) and isinstance(value.get("success"), bool):
        return "success_data"
    if way == (word,) or way == (word.replace("-", "_"),):
        return "named"
    return "_".join(way) if way == ("data", "items") else ".".join(way)


def _way_to(value: object, items: list[Any], depth: int) -> tuple[str, ...] | None:
    if isinstance(value, list) and value == items:
        return ()
    if isinstance(value, dict) and depth < _DEPTH_MAX:
        for name, inner in value.items():
            way = _way_to(inner, items, depth + 1)
            if way is not None:
                return (name, *way)
    return None


def paging_marks(seen: Seen, page: Page) -> list[str]:
    """How an answer says that there is more, or could be: words for the ways that it shows."""
    marks = []
    link = seen.headers.get("link", "")
    if page.next_cursor is not None:
        marks.append("cursor")
    if page.next_url is not None:
        marks.append("next_url")
    if "next" in link:
        marks.append("link_header")
    if page.number is not None:
        marks.append("page_number")
    if page.offset is not None:
        marks.append("offset")
    if any(name.lower().startswith("x-") and "page" in name.lower() for name in seen.headers):
        marks.append("page_header")
    return marks


def members_beside(value: object) -> list[str]:
    """Members beside a list that have to do with paging, whatever they hold."""
    if not isinstance(value, dict):
        return []
    return sorted(name for name in value if _PAGING_NAME.fullmatch(name) or name.lower().startswith(("next", "has_")))


def error_shape(seen: Seen) -> str:
    """What the body of an error is: ``complete``, ``error_alone``, ``nested``, ``message``, ``problem``, ``html``,
    ``text``, ``empty``, ``other``.
    """
    value = seen.json()
    if value is NOT_JSON:
        return "empty" if not seen.has_body else "html" if seen.is_page else "text"
    if not isinstance(value, dict):
        return "other"
    if isinstance(value.get("error"), str):
        return "complete" if isinstance(value.get("message"), str) else "error_alone"
    if isinstance(value.get("error"), dict):
        return "nested"
    if "problem" in seen.headers.get("content-type", "") or value.keys() >= {"title", "status"}:
        return "problem"
    return "message" if "message" in value else "other"


ERROR_WORDS: Final[Mapping[str, str]] = {
    "complete": "error and message",
    "error_alone": "error alone",
    "nested": "error as an object",
    "message": "message alone",
    "problem": "problem details (RFC 9457)",
    "html": "a web page",
    "text": "text",
    "empty": "nothing",
    "other": "JSON without error",
}


def body_shape(seen: Seen) -> str:
    """What the body of a successful write is: ``record``, ``success``, ``success_data``, ``empty_object``, ``empty``,
    ``text``, ``html``, ``other``.
    """
    value = seen.json()
    if value is NOT_JSON:
        return "empty" if not seen.has_body else "html" if seen.is_page else "text"
    if not isinstance(value, dict):
        return "other"
    if not value:
        return "empty_object"
    if isinstance(value.get("success"), bool):
        return "success_data" if len(value) > 1 else "success"
    return "record"


def time_form(value: object) -> str:
    """The form of a time: a key of :data:`TIME_WORDS`."""
    if isinstance(value, str):
        for name, pattern in _TIMES:
            if pattern.fullmatch(value):
                return name
    number = value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        number = int(value)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return next((name for name, low, high in _EPOCHS if low <= number < high), "unreadable")
    try:
        parse_any_time(value)
    except InvalidMessage:
        return "unreadable"
    return "other"


def times_in(items: list[Any], most: int = 20) -> Iterator[SeenTime]:
    """The times in the first records of a list, found by the names of their members."""
    for item in items[:most]:
        if not isinstance(item, dict):
            continue
        for name, value in item.items():
            is_time = value is not None and not isinstance(value, (bool, list)) and _TIME_NAME.fullmatch(name)
            if is_time and (not isinstance(value, dict) or "$date" in value):
                yield SeenTime(time_form(value), name, value)


def content_kind(seen: Seen) -> str:
    """The ``Content-Type`` of a JSON answer: ``json``, ``json_charset``, ``vendor_json``, ``text``, ``none``, or it."""
    value = seen.headers.get("content-type", "").lower()
    kind, _, parameters = value.partition(";")
    kind = kind.strip()
    if not kind:
        return "none"
    if kind == "application/json":
        return "json_charset" if parameters.strip() else "json"
    if kind.endswith("json"):
        return "vendor_json"
    return "text" if kind == "text/plain" else kind


def retry_after_form(seen: Seen) -> str:
    """How a 429 says when to come again: ``seconds``, ``date``, ``none``, ``huge``, ``other``."""
    value = seen.headers.get("retry-after", "").strip()
    if not value:
        return "none"
    if value.isascii() and value.isdigit():
        return "seconds" if len(value) < 6 else "huge"
    return "date" if re.match(r"[A-Z][a-z]{2}, ", value) else "other"
