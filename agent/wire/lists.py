"""Lists of any server, page by page: an array, or an object that holds one; by cursor, link, page number or offset.

Nothing is assumed of a server: a parameter is sent for the next page only when the answer has a member that belongs to
it, such as ``next_cursor`` to ``cursor`` and ``offset`` to ``offset``. Ours answers ``{"data": [...], "next_cursor":
text or null, "has_more": bool}`` with ``Link: rel="next"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from agent.errors import UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.auth import origin_of

Params = Mapping[str, str | int]

PAGES_MAX: Final = 100_000
"""How many pages of one list are read, unless the caller says otherwise."""
ITEMS_MAX: Final = 20_000
"""So many commands of one list are looked at: half of them from its beginning, half from its end."""

_EMPTY_PAGES_MAX: Final = 100
_DEPTH_MAX: Final = 3
_ENVELOPES: Final = ("data", "items", "results", "result", "records", "response", "content", "value", "_embedded")
_NOT_ITEMS: Final = frozenset({"errors", "error", "warnings", "details", "messages", "links", "_links", "meta", "tags"})
_RECORD_MARKS: Final = frozenset({"command_payload", "commandPayload", "sensor_data", "sensorData"})
_PAGING: Final = ("meta", "pagination", "paging", "page", "page_info", "pageInfo", "links", "_links")
"""Members that hold objects which speak about paging."""
_CURSORS: Final[Mapping[str, str]] = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next_offset": "offset",
    "next_page": "page",
    "next": "cursor",
}
"""Member -> the parameter that takes its value."""
_LINKS: Final = ("next", "next_url", "nextUrl", "next_link", "nextLink", "next_page_url", "next_page")
_MORE: Final = ("has_more", "hasMore", "has_next", "hasNext", "hasNextPage")
_NUMBERS: Final[Mapping[str, str]] = {"page": "page", "current_page": "page", "currentPage": "page"}
_TOTAL_PAGES: Final = ("total_pages", "totalPages", "last_page", "page_count", "pages")
_SIZES: Final = ("per_page", "perPage", "page_size", "pageSize", "limit", "size")
_OFFSETS: Final = ("offset", "skip", "start")
_TOTALS: Final = ("total", "total_count", "totalCount", "count")
_LINK: Final = re.compile(r'<([^>]*)>((?:[^,"]|"[^"]*")*)')
_REL: Final = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,]+))', re.IGNORECASE)


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
        omitted: how many items the answer had beside these, when it had too many.
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

    def cut(self, most: int = ITEMS_MAX) -> Page:
        """The page with at most so many items, from both of its ends."""
        left_out = len(self.items) - most
        if left_out <= 0:
            return self
        items = [*self.items[: most // 2], *self.items[-(most - most // 2) :]]
        return replace(self, items=items, omitted=left_out)


# --- one answer -------------------------------------------------------------------------------------------------------


def read_page(value: object, source: str = "the service", word: str = "") -> Page:
    """The list in a JSON value: an array; an object that has it under a usual name, or under any as its only array,
    also further inside; or a single record where one belongs.

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
    around: list[dict[str, Any]] = []
    items = _find_items(value, word, around)
    if items is None:
        count = sum(isinstance(inner, list) for inner in value.values())
        raise UnexpectedAnswer(
            f"{source} answered an object with {count} arrays where one list belongs: check base_url"
        )
    return _with_paging(items, list(_speaking_of_paging(around)))


def _find_items(value: dict[str, Any], word: str, around: list[dict[str, Any]]) -> list[Any] | None:
    """The items in an object; ``around`` gets the objects that lie around them."""
    if any(not isinstance(value[name], list) for name in _RECORD_MARKS & value.keys()):
        return [value]  # a record of its own; an array of that name would be the list
    if len(around) > _DEPTH_MAX:
        return None
    around.append(value)
    known = [value[name] for name in (word, *_ENVELOPES) if name in value]
    others = [inner for name, inner in value.items() if name not in _NOT_ITEMS and name not in _PAGING]
    for inner in known:
        if isinstance(inner, list):
            return inner
    for inner in known:
        found = _find_items(inner, word, around) if isinstance(inner, dict) else None
        if found is not None:
            return found
    lists = [inner for inner in others if isinstance(inner, list)]
    if lists:
        return lists[0] if len(lists) == 1 else None
    objects = [inner for inner in others if isinstance(inner, dict)]
    found = _find_items(objects[0], word, around) if len(objects) == 1 else None
    return [] if found is None and None in known else found  # {"data": null}


def _speaking_of_paging(around: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for outer in around:
        yield outer
        yield from (outer[name] for name in _PAGING if isinstance(outer.get(name), dict))


def _with_paging(items: list[Any], scopes: list[dict[str, Any]]) -> Page:
    more = next((scope[name] for name in _MORE for scope in scopes if isinstance(scope.get(name), bool)), None)
    total, size, pages = (_whole(scopes, names) for names in (_TOTALS, _SIZES, _TOTAL_PAGES))
    if pages is None and total is not None and size:
        pages = -(-total // size)
    number = _counted(scopes, _NUMBERS, pages)
    offset = _counted(scopes, {name: name for name in _OFFSETS}, total)
    param, cursor = "cursor", None
    for name, param_name in _CURSORS.items():
        found = next((text for scope in scopes if (text := _cursor(scope.get(name))) is not None), None)
        if found is not None:
            param, cursor = number.param if name == "next" and number else param_name, found
            break
    return Page(items, cursor, more, param, _find_link(scopes), number, offset, total)


def _counted(scopes: list[dict[str, Any]], names: Mapping[str, str], end: int | None) -> Counted | None:
    for name, param in names.items():
        at = _whole(scopes, (name,))
        if at is not None:
            return Counted(param, at, end)
    return None


def _cursor(value: object) -> str | None:
    if isinstance(value, str) and value and not _is_url(value):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


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


def _whole(scopes: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    """A count: 0 or more, also as digits."""
    for name in names:
        for scope in scopes:
            value = scope.get(name)
            if isinstance(value, str):
                value = _digits(value)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def next_link(answer: Answer, url: httpx.URL, in_body: str | None = None) -> httpx.URL | None:
    """Where ``Link: rel="next"`` (RFC 8288) points, or else the body, resolved against ``url``; None without either.

    Raises:
        UnexpectedAnswer: it points to another origin, or nowhere.
    """
    target = in_body
    for where, attributes in _LINK.findall(answer.headers.get("link", "")):
        if any("next" in (quoted or bare).lower().split() for quoted, bare in _REL.findall(attributes)):
            target = where
            break
    if target is None:
        return None
    try:
        link = url.join(target)
    except httpx.InvalidURL:
        raise UnexpectedAnswer(f"{answer.source} names a next page that is no address") from None
    if origin_of(link) != origin_of(url):
        raise UnexpectedAnswer(
            f"{answer.source} names a next page on another host, {link.host}, which is not followed, since it "
            "would get the keys too: look at the proxy in between, or the service's public address"
        )
    return link


# --- from page to page ------------------------------------------------------------------------------------------------


class PageWalk:
    """The way through the pages of a list, for whoever makes the requests: ask for ``target`` with ``params``, hand the
    answer to :meth:`take`, and go on until ``done``.

    Args:
        path: of the list.
        params: query parameters of each page that a cursor, a page number or an offset asks for.
        url: the absolute URL of ``path``, which links are resolved against.
        pages_max: how many pages are read.

    Attributes:
        target: path, or absolute URL of the same origin.
        params: query parameters to add to it.
        done: there is no further page.
    """

    def __init__(self, path: str, params: Params, url: httpx.URL, *, pages_max: int = PAGES_MAX) -> None:
        self._path = path
        self._word = path.rpartition("/")[2]
        self._query = params
        self._url = url
        self._pages_left = pages_max
        self._seen: set[str] = set()
        self._empty_pages = 0
        self._expected: Counted | None = None
        self.target = path
        self.params: Params = dict(params)
        self.done = False

    def take(self, answer: Answer) -> Page:
        """The page in an answer; :meth:`proceed` is to be called before the next one is asked for.

        Raises:
            UnexpectedAnswer: no list, or another page than the one that was asked for.
        """
        if answer.is_unchanged:
            self.done = True
            return Page([])
        page = read_page(answer.json(), answer.source, self._word)
        expected = self._expected
        for counted in (page.number, page.offset):
            if counted and expected and counted.param == expected.param and counted.at != expected.at:
                raise UnexpectedAnswer(
                    f"{answer.source} answers page {counted.at} of this list where {expected.at} was asked for: stopped"
                )
        return page

    def proceed(self, answer: Answer, page: Page) -> None:
        """Go on to the page after this one.

        Raises:
            UnexpectedAnswer: it was there before, there are 100 empty ones in a row or too many (it would never end),
                or the answer does not say how to get it.
        """
        if self.done:
            return
        self._empty_pages = 0 if page.items else self._empty_pages + 1
        self._pages_left -= 1
        mark = None if page.has_more is False else self._aim(answer, page)
        if mark is None:
            if page.has_more:
                raise UnexpectedAnswer(f"{answer.source} says there is more of this list, and not how to get it")
            self.done = True
            return
        if mark in self._seen or self._empty_pages >= _EMPTY_PAGES_MAX:
            raise UnexpectedAnswer(f"{answer.source} repeats the same page of this list for ever: stopped")
        if self._pages_left <= 0:
            raise UnexpectedAnswer(f"{answer.source} has more pages of this list than are read: stopped")
        self._seen.add(mark)

    def _aim(self, answer: Answer, page: Page) -> str | None:
        """Set ``target`` and ``params`` to the next page; returns a mark that only it has, or None at the end."""
        self._expected = None
        if page.next_cursor is not None:
            return self._turn(page.cursor_param, page.next_cursor)
        link = next_link(answer, self._url, page.next_url)
        if link is not None:
            self.target, self.params = str(link), {}
            return self.target
        for counted, step in ((page.number, 1), (page.offset, len(page.items))):
            if counted is None or not page.items:
                continue
            last_read = counted.at if counted is page.number else counted.at + step
            if page.has_more or (counted.end is not None and last_read < counted.end):
                self._expected = Counted(counted.param, counted.at + step)
                return self._turn(counted.param, counted.at + step)
        return None

    def _turn(self, param: str, value: str | int) -> str:
        self.target, self.params = self._path, {**self._query, param: value}
        return f"{param}={value}"
