"""Lists of any server, page by page: by cursor, by link in a header or the body, by page number, by offset.

Ours is ``{"data": [...], "next_cursor": text or null, "has_more": bool}`` with ``Link: rel="next"``; what the
specification leaves open, other services may answer otherwise.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

import httpx

from agent.errors import UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.auth import origin_of
from agent.wire.pages import Counted, Page, read_page

__all__ = ["PAGES_MAX", "Page", "PageWalk", "Params", "next_link", "read_page"]

Params = Mapping[str, str | int]

_EMPTY_PAGES_MAX: Final = 100
PAGES_MAX: Final = 100_000
"""How many pages of one list are read, unless the caller says otherwise."""
_LINK: Final = re.compile(r'<([^>]*)>((?:[^,"]|"[^"]*")*)')
_REL: Final = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,]+))', re.IGNORECASE)


def next_link(answer: Answer, url: httpx.URL, in_body: str | None = None) -> httpx.URL | None:
    """Where ``Link: rel="next"`` (RFC 8288) points, or else the body, resolved against ``url``; None without either.

    Raises:
        UnexpectedAnswer: it points to another origin, or nowhere.
    """
    target = next((where for where, words in _links(answer) if "next" in words), in_body)
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


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _links(answer: Answer) -> Iterator[tuple[str, set[str]]]:
    for target, attributes in _LINK.findall(answer.headers.get("link", "")):
        yield target, {word for quoted, bare in _REL.findall(attributes) for word in (quoted or bare).lower().split()}


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
        self._first_number: int | None = None
        self._expected: tuple[int | None, int | None] = (None, None)
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
        in_headers = answer.headers.get("x-page", "")
        if page.number is None and in_headers:  # a server that counts its pages in headers alone
            end = _count(answer.headers.get("x-total-pages", ""))
            at = _count(in_headers)
            page = page if at is None else replace(page, number=Counted("page", at, end))
        for counted, expected in zip((page.number, page.offset), self._expected, strict=True):
            if counted is not None and expected is not None and counted.at != expected:
                raise UnexpectedAnswer(
                    f"{answer.source} answers page {counted.at} of this list where {expected} was asked for: stopped"
                )
        if self._first_number is None and page.number is not None:
            self._first_number = page.number.at
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
        self._expected = (None, None)
        if page.next_cursor is not None:
            return self._turn(page.cursor_param, page.next_cursor)
        link = next_link(answer, self._url, page.next_url)
        if link is not None:
            self.target, self.params = str(link), {}
            return self.target
        number, offset = page.number, page.offset
        if number is not None and self._goes_on(page, number, number.at + (self._first_number == 0)):
            self._expected = (number.at + 1, None)
            return self._turn(number.param, number.at + 1)
        if offset is not None and self._goes_on(page, offset, offset.at + len(page.items)):
            self._expected = (None, offset.at + len(page.items))
            return self._turn(offset.param, offset.at + len(page.items))
        return None

    def _turn(self, param: str, value: str | int) -> str:
        self.target, self.params = self._path, {**self._query, param: value}
        return f"{param}={value}"

    @staticmethod
    def _goes_on(page: Page, counted: Counted, read_so_far: int) -> bool:
        return bool(page.items) and (page.has_more is True or (counted.end is not None and read_so_far < counted.end))


ITEMS_MAX: Final = 20_000
"""So many commands of one list are looked at: half of them from its beginning, half from its end."""

_SPACE: Final = " \t\n\r"
_LEAST_BYTES: Final = 2
_COMMAS: Final = 25


def cut_list(raw: bytes, most: int = ITEMS_MAX) -> tuple[bytes, int]:
    """The same JSON text with at most so many items in its arrays of objects, and how many items were left out.

    What is no JSON comes back as it is: parsing it raises the error. Only arrays that are the text itself or are found
    through members of objects are cut, not arrays inside arrays.
    """
    if len(raw) < most * _LEAST_BYTES:
        return raw, 0
    # Of the items of an array, each but one has a comma before it; most lists have many other commas, too.
    if raw.count(b"{") + raw.count(b"[") <= most and raw.count(b",") < _COMMAS * most:
        return raw, 0
    # One character for each byte, and the structure of JSON is ASCII: positions are the same.
    text = raw.decode("latin-1")
    cuts: list[tuple[int, int, int]] = []
    try:
        _find_cuts(text, most, cuts)
    except (ValueError, IndexError, RecursionError):
        return raw, 0
    for begin, end, _ in reversed(cuts):
        raw = raw[:begin] + b"," + raw[end:]
    return raw, sum(count for _, _, count in cuts)


def _find_cuts(text: str, most: int, cuts: list[tuple[int, int, int]]) -> None:
    """Collect (begin, end, items) of what to leave out: from the end of one item to the beginning of another."""
    decoder = json.JSONDecoder(strict=False)
    at = _skip(text, 0)
    objects = 0  # that are open here
    while True:
        if text[at] == "[":
            at = _walk_array(decoder, text, at + 1, most, cuts)
        elif text[at] == "{":
            objects += 1
            at = _skip(text, at + 1)
            if text[at] != "}":
                at = _after_name(decoder, text, at)
                continue
        else:
            at = decoder.raw_decode(text, at)[1]
        # A value has ended, or an empty object is about to.
        while objects and text[at := _skip(text, at)] == "}":
            objects -= 1
            at += 1
        if not objects:
            return
        if text[at] != ",":
            raise ValueError
        at = _after_name(decoder, text, _skip(text, at + 1))


def _after_name(decoder: json.JSONDecoder, text: str, at: int) -> int:
    """Where the value of the member begins whose name begins here."""
    at = _skip(text, decoder.raw_decode(text, at)[1])
    if text[at] != ":":
        raise ValueError
    return _skip(text, at + 1)


def _walk_array(decoder: json.JSONDecoder, text: str, at: int, most: int, cuts: list[tuple[int, int, int]]) -> int:
    """Where the array whose first item begins about here has ended."""
    count, head_end = 0, 0
    begins: deque[int] = deque(maxlen=most - most // 2)
    at = _skip(text, at)
    while text[at] != "]":
        begins.append(at)
        at = _skip(text, decoder.raw_decode(text, at)[1])
        count += 1
        if count == most // 2:
            head_end = at
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != "]":
            raise ValueError
    if count > most:
        cuts.append((head_end, next(islice(begins, 1)), count - most))
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
