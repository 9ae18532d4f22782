"""One page of a list in any shape: where its items are, and what its answer says of the next page.

Nothing is assumed of a server: a parameter is sent for the next page only when the answer has a member that belongs to
it, such as ``next_cursor`` to ``cursor`` and ``offset`` to ``offset``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.errors import UnexpectedAnswer

_DEPTH_MAX: Final = 6
_ENVELOPES: Final = ("data", "items", "results", "result", "records", "response", "content", "value", "_embedded")
_NOT_ITEMS: Final = frozenset(
    {"errors", "error", "warnings", "details", "messages", "links", "_links", "meta", "metadata", "filters", "tags"}
)
_RECORD_MARKS: Final = frozenset({"command_payload", "commandPayload", "sensor_data", "sensorData"})
_PAGING: Final = frozenset(
    {
        *("meta", "metadata", "_meta", "pagination", "paging", "page", "page_info", "pageInfo", "pages", "cursors"),
        *("links", "_links", "cursor", "response_metadata", "responseMetadata"),
    }
)
_CURSORS: Final[Mapping[str, str]] = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next_token": "next_token",
    "nextToken": "nextToken",
    "NextToken": "NextToken",
    "continuation_token": "continuation_token",
    "continuationToken": "continuationToken",
    "continuation": "continuation",
    "next_offset": "offset",
    "nextOffset": "offset",
    "next_page": "page",
    "nextPage": "page",
    "end_cursor": "after",
    "endCursor": "after",
    "after": "after",
}
"""Member -> the parameter that takes its value."""
_MAYBE_CURSORS: Final = ("next", "cursor")
"""A cursor if it is no address; ``cursor`` only where more is announced, since it may be this page's own."""
_LINKS: Final = (
    *("next", "next_url", "nextUrl", "next_link", "nextLink", "@odata.nextLink", "next_page_url", "nextPageUrl"),
    *("next_page", "nextPage", "next_cursor", "nextCursor"),
)
_MORE: Final = ("has_more", "hasMore", "has_next", "hasNext", "has_next_page", "hasNextPage", "more")
_NUMBERS: Final[Mapping[str, str]] = {
    "page": "page",
    "current_page": "page",
    "currentPage": "page",
    "page_number": "page_number",
    "pageNumber": "pageNumber",
}
_TOTAL_PAGES: Final = (
    *("total_pages", "totalPages", "last_page", "lastPage", "page_count", "pageCount", "pages", "num_pages"),
    "numPages",
)
_SIZES: Final = ("per_page", "perPage", "page_size", "pageSize", "limit", "size")
_OFFSETS: Final = ("offset", "skip", "start")
_TOTALS: Final = ("total", "total_count", "totalCount", "total_items", "totalItems", "totalElements")


@dataclass(frozen=True, slots=True)
class Counted:
    """Where a page lies in a list that is counted, by pages or by items.

    Attributes:
        param: the parameter that asks for another one.
        at: this page's number, or the place of its first item, as the answer says.
        end: how many pages, or items, there are; None when the answer does not say.
    """

    param: str
    at: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    Attributes:
        next_cursor: how to ask for the next page; None when the answer names no cursor.
        has_more: whether there is one; None when the answer does not say.
        cursor_param: the parameter that takes the cursor.
        next_url: where the body says the next page is; as it came.
        number: this page by its number.
        offset: this page by the place of its first item.
        total: how many items the whole list has; None when the answer does not say.
        omitted: how many items the answer had beside these, when it was cut (:func:`agent.wire.lists.cut_list`).
    """

    items: list[Any]
    next_cursor: str | None = None
    has_more: bool | None = None
    cursor_param: str = "cursor"
    next_url: str | None = None
    number: Counted | None = None
    offset: Counted | None = None
    total: int | None = None
    omitted: int = 0


def read_page(value: object, source: str = "the service", word: str = "") -> Page:
    """The list in a JSON value: an array; an object that has it under any one name, also further inside; or a single
    record where one belongs.

    Args:
        value: the JSON value.
        source: who answered.
        word: the name that the list most likely has, such as ``commands``.

    Raises:
        UnexpectedAnswer: there is no list, or more than one and none of the known names.
    """
    if isinstance(value, list):
        return Page(value)
    if not isinstance(value, dict):
        kind = "nothing" if value is None else type(value).__name__
        raise UnexpectedAnswer(f"{source} answered {kind} where a list belongs: check base_url")
    way: list[dict[str, Any]] = []
    items = _find_items(value, word, way, 0)
    if items is None:
        count = sum(isinstance(inner, list) for inner in value.values())
        raise UnexpectedAnswer(
            f"{source} answered an object with {count} arrays where one list belongs: check base_url"
        )
    return _with_paging(items, list(_paging_of(way)))


def _find_items(value: dict[str, Any], word: str, way: list[dict[str, Any]], depth: int) -> list[Any] | None:
    """The items in an object; ``way`` gets the objects that lie around them."""
    if _is_record(value):
        return [value]
    if depth > _DEPTH_MAX:
        return None
    way.append(value)
    names = [name for name in (word, *_ENVELOPES) if name in value]
    others = [name for name in value if name not in names and name not in _NOT_ITEMS and name not in _PAGING]
    lists = [inner for name in names if isinstance(inner := value[name], list)]
    if lists:
        return lists[0]
    for name in names:
        found = _inside(value[name], word, way, depth)
        if found is not None:
            return found
    lists = [inner for name in others if isinstance(inner := value[name], list)]
    objects = [inner for name in others if isinstance(inner := value[name], dict)]
    found = lists[0] if len(lists) == 1 else None
    if not lists and len(objects) == 1:
        found = _inside(objects[0], word, way, depth)
    is_null = found is None and not lists and any(value[name] is None for name in names)
    return [] if is_null else found  # {"data": null}


def _is_record(value: dict[str, Any]) -> bool:
    """It holds what one record holds; an array is the list itself, under the name of its records."""
    return any(not isinstance(value[name], list) for name in _RECORD_MARKS & value.keys())


def _inside(value: object, word: str, way: list[dict[str, Any]], depth: int) -> list[Any] | None:
    return _find_items(value, word, way, depth + 1) if isinstance(value, dict) else None


def _paging_of(way: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects that may speak about paging: those around the list, and their members with names for it."""
    for outer in way:
        yield outer
        for name in _PAGING & outer.keys():
            inner = outer[name]
            if isinstance(inner, dict):
                yield inner
                yield from (inner[deep] for deep in _PAGING & inner.keys() if isinstance(inner[deep], dict))
            elif isinstance(inner, list) and "links" in name:
                yield {str(link.get("rel")): link for link in inner if isinstance(link, dict)}


def _with_paging(items: list[Any], scopes: list[dict[str, Any]]) -> Page:
    more = _first(scopes, _MORE, bool)
    total = _whole(scopes, _TOTALS)
    number = next(
        (
            Counted(param_name, at, _page_count(scopes, total))
            for name, param_name in _NUMBERS.items()
            if (at := _whole(scopes, (name,))) is not None
        ),
        None,
    )
    offset = next(
        (
            Counted(name, at, total if total is not None else _whole(scopes, ("count",)))
            for name in _OFFSETS
            if (at := _whole(scopes, (name,))) is not None
        ),
        None,
    )
    param, cursor = _find_cursor(scopes, _CURSORS)
    if cursor is None:
        maybe = _MAYBE_CURSORS if more else _MAYBE_CURSORS[:1]
        param, cursor = _find_cursor(scopes, dict.fromkeys(maybe, "cursor" if number is None else number.param))
    return Page(items, cursor, more, param, _find_link(scopes), number, offset, total)


def _find_cursor(scopes: list[dict[str, Any]], names: Mapping[str, str]) -> tuple[str, str | None]:
    for name, param in names.items():
        for scope in scopes:
            value = scope.get(name)
            is_text = isinstance(value, str) and value != "" and not _is_url(value)
            if is_text or (isinstance(value, int) and not isinstance(value, bool)):
                return param, str(value)
    return "cursor", None


def _find_link(scopes: list[dict[str, Any]]) -> str | None:
    for name in _LINKS:
        for scope in scopes:
            value = scope.get(name)
            if isinstance(value, dict):
                value = value.get("href", value.get("url"))
            if isinstance(value, str) and _is_url(value):
                return value
    return None


def _is_url(text: str) -> bool:
    return "?" in text or text.startswith(("/", "http://", "https://"))


def _page_count(scopes: list[dict[str, Any]], total: int | None) -> int | None:
    pages = _whole(scopes, _TOTAL_PAGES)
    size = _whole(scopes, _SIZES)
    if pages is not None or total is None or not size:
        return pages
    return -(-total // size)


def _whole(scopes: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    """A count: 0 or more, also as digits."""
    for name in names:
        for scope in scopes:
            value = scope.get(name)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


def _first(scopes: list[dict[str, Any]], names: tuple[str, ...], kind: type) -> Any:
    return next((scope[name] for name in names for scope in scopes if isinstance(scope.get(name), kind)), None)
