"""Lists in any shape: cursor pages, ``Link`` pages, bare arrays, envelopes with any name.

Ours is ``{"data": [...], "next_cursor": text or null, "has_more": bool}`` with ``Link: rel="next"``; what the
specification leaves open, other services may answer otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx

from agent.errors import UnexpectedAnswer
from agent.frozen import dataclass
from agent.wire.answers import Answer
from agent.wire.auth import origin_of

Params = Mapping[str, str | int]
Fetch = Callable[[str, Params], Answer]
"""(path, or absolute URL of the same origin; query parameters) -> the answer."""

_ENVELOPES: Final = ("data", "items", "results")
_CURSORS: Final = ("next_cursor", "nextCursor")
_EMPTY_PAGES_MAX: Final = 100
_LINK: Final = re.compile(r'<([^>]*)>((?:[^,"]|"[^"]*")*)')
_REL: Final = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,]+))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    Attributes:
        next_cursor: how to ask for the next page; None when the answer names no cursor.
        has_more: whether there is one; None when the answer does not say.
    """

    items: list[Any]
    next_cursor: str | None = None
    has_more: bool | None = None


def read_page(value: object, source: str = "the service") -> Page:
    """The list in a JSON value: an array, or an object with ``data``, ``items``, ``results`` or one single array.

    Raises:
        UnexpectedAnswer: there is no list, or more than one and none of the known names.
    """
    if isinstance(value, list):
        return Page(value)
    if isinstance(value, dict):
        cursor = next((value[name] for name in _CURSORS if value.get(name) not in (None, "")), None)
        more = value.get("has_more", value.get("hasMore"))
        return Page(
            _find_list(value, source),
            str(cursor) if isinstance(cursor, (str, int)) else None,
            more if isinstance(more, bool) else None,
        )
    kind = "nothing" if value is None else type(value).__name__
    raise UnexpectedAnswer(f"{source} answered {kind} where a list belongs: check base_url")


def _find_list(value: dict[str, Any], source: str) -> list[Any]:
    for name in _ENVELOPES:
        inner = value.get(name)
        if isinstance(inner, list):
            return inner
        if isinstance(inner, dict):  # {"data": {"items": [...]}}
            return _find_list(inner, source)
    lists = [inner for inner in value.values() if isinstance(inner, list)]
    if len(lists) == 1:
        return lists[0]
    if not lists and any(name in value for name in _ENVELOPES):
        return []  # {"data": null}
    raise UnexpectedAnswer(
        f"{source} answered an object with {len(lists)} arrays where one list belongs: check base_url"
    )


def next_link(answer: Answer, url: httpx.URL) -> httpx.URL | None:
    """Where ``Link: rel="next"`` (RFC 8288) points, resolved against ``url``; None when there is none.

    Raises:
        UnexpectedAnswer: it points to another origin, or nowhere.
    """
    for target, attributes in _LINK.findall(answer.headers.get("link", "")):
        relations = {word for quoted, bare in _REL.findall(attributes) for word in (quoted or bare).lower().split()}
        if "next" not in relations:
            continue
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
    return None


class PageWalk:
    """The way through the pages of a list, for whoever makes the requests: ask for ``target`` with ``params``, hand the
    answer to :meth:`take`, and go on until ``done``.

    Args:
        path: of the list.
        params: query parameters of each page that a cursor asks for.
        url: the absolute URL of ``path``, which links are resolved against.

    Attributes:
        target: path, or absolute URL of the same origin.
        params: query parameters to add to it.
        done: there is no further page.
    """  # noqa: D205 - one sentence needs two lines

    def __init__(self, path: str, params: Params, url: httpx.URL) -> None:
        self._path = path
        self._query = params
        self._url = url
        self._seen: set[str] = set()
        self._empty_pages = 0
        self.target = path
        self.params: Params = dict(params)
        self.done = False

    def take(self, answer: Answer) -> Page:
        """The page in an answer; :meth:`proceed` is to be called before the next one is asked for.

        Raises:
            UnexpectedAnswer: no list.
        """
        if answer.is_unchanged:
            self.done = True
            return Page([])
        return read_page(answer.json(), answer.source)

    def proceed(self, answer: Answer, page: Page) -> None:
        """Go on to the page after this one.

        Raises:
            UnexpectedAnswer: it was there before, or 100 empty ones in a row: it would never end.
        """
        if self.done:
            return
        self._empty_pages = 0 if page.items else self._empty_pages + 1
        link = next_link(answer, self._url)
        if page.has_more is False or (page.next_cursor is None and link is None):
            if page.has_more:
                raise UnexpectedAnswer(f"{answer.source} says there is more of this list, and not how to get it")
            self.done = True
            return
        if page.next_cursor is not None:
            mark, self.target = page.next_cursor, self._path
            self.params = {**self._query, "cursor": page.next_cursor}
        else:
            mark, self.target, self.params = str(link), str(link), {}
        if mark in self._seen or self._empty_pages >= _EMPTY_PAGES_MAX:
            raise UnexpectedAnswer(f"{answer.source} repeats the same page of this list for ever: stopped")
        self._seen.add(mark)


def iterate_pages(fetch: Fetch, path: str, params: Params, url: httpx.URL) -> Iterator[tuple[Answer, Page]]:
    """Each page with its answer, fetched when asked for.

    Args:
        fetch: makes one request.
        path: of the list.
        params: query parameters of each page that a cursor asks for.
        url: the absolute URL of ``path``, which links are resolved against.

    Raises:
        UnexpectedAnswer: no list; or a page that was there before, or 100 empty ones in a row: it would never end.
    """
    walk = PageWalk(path, params, url)
    while not walk.done:
        answer = fetch(walk.target, walk.params)
        page = walk.take(answer)
        yield answer, page
        walk.proceed(answer, page)
