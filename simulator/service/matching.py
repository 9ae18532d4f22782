"""Matches requests by method, path, device, product, account, key and headers.

A :class:`RequestMatch` is what a control operation takes as JSON. Checked against what exists (see
:mod:`simulator.service.request_matches`) it becomes a :class:`Matcher`, which is asked about the
:class:`RequestFacts` of each request. Every member that is given has to fit; one that is left out fits every request.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, unquote

from pydantic import Field
from pydantic_core import from_json

from agent.wire.base import Sent, Text
from simulator.service.addresses import CONTROL_PREFIX

Issues = list[tuple[str, str]]
"""(field, issue) for each fault of a match."""

SECRET_HEADERS: Final = frozenset(
    {"x-secret-key", "authorization", "proxy-authorization", "cookie", "x-emulator-token"}
)
"""Request headers whose values are secrets: neither matched by nor shown."""
HEADERS_MAX: Final = 20
_PATH_PARAMETER: Final = re.compile(r"\\\{(\w+)\\\}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_ALL_PATHS: Final = frozenset({"OPTIONS"})
"""Methods that every path has: a browser asks before a page of another origin may call."""
_NAMED_MAX: Final = 1_000
"""Devices of one request: a batch has 500 readings at most."""


class RequestMatch(Sent):
    """The JSON form of a match; one without members matches every request."""

    method: Annotated[Text | None, Field(description="Such as `POST`.")] = None
    path: Annotated[
        Text | None,
        Field(description="A path as the documents have it, `/devices/{device_id}/commands`, or with ids in it."),
    ] = None
    device_id: Annotated[
        Text | None, Field(description="A device that the path, the query or the JSON body of the request names.")
    ] = None
    product_id: Annotated[
        Text | None, Field(description="A product that the request names, or whose device it names.")
    ] = None
    account_id: Annotated[
        Text | None,
        Field(description="The account that the key or token belongs to: id, name or key."),
    ] = None
    api_key: Annotated[Text | None, Field(description="One public key: the requests that carry it.")] = None
    headers: Annotated[
        dict[str, Annotated[str, Field(max_length=1000)] | None] | None,
        Field(
            description="Header -> its value, in which `*` stands for any text; null: the request does not have it.",
            max_length=HEADERS_MAX,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FoundPath:
    """A path that the service has.

    Attributes:
        template: as the documents have it.
        ids: what stands for its parameters, decoded.
    """

    template: str
    ids: Mapping[str, str]


class PathTemplates:
    """The paths that the service has, and their methods.

    Args:
        methods: template -> methods.
    """

    def __init__(self, methods: Mapping[str, Collection[str]]) -> None:
        self.methods: dict[str, frozenset[str]] = {
            path: frozenset(one | ({"HEAD"} if "GET" in one else set()) | _ALL_PATHS)
            for path, one in ((path, set(given)) for path, given in methods.items())
        }
        self._patterns = [(_pattern(path), path) for path in methods if "{" in path]

    def find(self, path: str) -> FoundPath | None:
        """The template of a path as it was sent, percent-encoded; None when the service has no such path."""
        if path in self.methods and "{" not in path:
            return FoundPath(path, {})
        for pattern, template in self._patterns:
            found = pattern.fullmatch(path)
            if found:
                return FoundPath(template, {name: unquote(value) for name, value in found.groupdict().items()})
        return None

    def all_methods(self) -> frozenset[str]:
        """Every method that some path has."""
        return frozenset().union(*self.methods.values())


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The facts of a request that a match compares.

    Attributes:
        path: as it was sent, percent-encoded, without the query.
        template: of the path; None when the service has no such path.
        ids: what stands for the template's parameters.
        device_ids: devices that the request names.
        product_ids: products that it names, or whose devices it names.
        account: row of the account that the key or token belongs to, whether or not its secret is right; None without.
        api_key: the public key that it carries.
        headers: its headers, names in lower case; of one that comes twice the last.
    """

    method: str
    path: str
    template: str | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    device_ids: Sequence[str] = ()
    product_ids: Sequence[str] = ()
    account: int | None = None
    api_key: str | None = None
    headers: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One member of a match that a request does not fit.

    Attributes:
        field: such as ``device_id`` or ``headers.user-agent``.
        wanted: what the match says.
        found: what the request has; None for nothing.
    """

    field: str
    wanted: str | None
    found: str | None


@dataclass(frozen=True, slots=True)
class _Header:
    name: bytes
    wanted: str | None

    def fits(self, value: bytes | None) -> bool:
        if self.wanted is None or value is None:
            return value is None and self.wanted is None
        return _fits(self.wanted.split("*"), value.decode("latin-1"))


@dataclass(frozen=True, slots=True)
class Matcher:
    """A match whose names were looked up and exist.

    Attributes:
        wanted: as it was given.
        template: of the path; None for every path.
        ids: what the path's parameters must be, where the path was given with ids.
        account: row of the account that ``account_id`` or ``api_key`` names; None for every one.
    """

    wanted: RequestMatch
    template: str | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    account: int | None = None
    _headers: tuple[_Header, ...] = ()

    @property
    def names_things(self) -> bool:
        """Whether it looks at devices or products, which may be named in the body."""
        return self.wanted.device_id is not None or self.wanted.product_id is not None

    def matches(self, request: RequestFacts) -> bool:
        """Whether the request is meant."""
        return not self.differences(request)

    def differences(self, request: RequestFacts) -> list[Difference]:
        """What does not fit; nothing when the request is meant."""
        wanted, found = self.wanted, []
        if wanted.method is not None and wanted.method.upper() != request.method:
            found.append(Difference("method", wanted.method.upper(), request.method))
        if self.template is not None and (
            self.template != request.template or any(request.ids.get(name) != one for name, one in self.ids.items())
        ):
            found.append(Difference("path", wanted.path, request.path))
        if wanted.device_id is not None and wanted.device_id not in request.device_ids:
            found.append(Difference("device_id", wanted.device_id, _list(request.device_ids)))
        if wanted.product_id is not None and wanted.product_id not in request.product_ids:
            found.append(Difference("product_id", wanted.product_id, _list(request.product_ids)))
        if wanted.account_id is not None and self.account != request.account:
            found.append(Difference("account_id", wanted.account_id, request.api_key))
        if wanted.api_key is not None and wanted.api_key != request.api_key:
            found.append(Difference("api_key", wanted.api_key, request.api_key))
        for header in self._headers:
            value = request.headers.get(header.name)
            if not header.fits(value):
                name = header.name.decode()
                found.append(
                    Difference(f"headers.{name}", header.wanted, None if value is None else value.decode("latin-1"))
                )
        return found


def make_matcher(wanted: RequestMatch, templates: PathTemplates, account: int | None = None) -> tuple[Matcher, Issues]:
    """A matcher, and what of the match names nothing that exists; use it only when that is nothing.

    Args:
        wanted: the match as it was given.
        templates: the paths that the service has.
        account: the row of the account that is named; the caller has looked it up.
    """
    issues: Issues = []
    found = None if wanted.path is None else _find_path(wanted.path, templates, issues)
    _check_method(wanted.method, found, templates, issues)
    headers = tuple(_header(name, value, issues) for name, value in (wanted.headers or {}).items())
    template, ids = (None, {}) if found is None else (found.template, found.ids)
    return Matcher(wanted, template, ids, account, headers), issues


def named_ids(name: str, ids: Mapping[str, str], query_string: bytes, body: bytes) -> tuple[str, ...]:
    """The devices or products that a request names, in its path, its query and its JSON body.

    Args:
        name: ``device_id`` or ``product_id``.
        ids: what stands for the path's parameters.
        query_string: as it was sent.
        body: a JSON object, or an array of them; nothing is found in anything else.
    """
    found = [ids[name]] if name in ids else []
    if query_string:
        found += [value for key, value in parse_qsl(query_string.decode("latin-1")) if key == name]
    try:
        value: Any = from_json(body) if body else None
    except ValueError:
        value = None
    items = value if isinstance(value, list) else [value]
    found += [one[name] for one in items[:_NAMED_MAX] if isinstance(one, dict) and isinstance(one.get(name), str)]
    return tuple(dict.fromkeys(one for one in found if "\0" not in one))  # which no database takes


def _find_path(path: str, templates: PathTemplates, issues: Issues) -> FoundPath | None:
    if path.startswith(CONTROL_PREFIX):
        issues.append(("path", f"the control paths, {CONTROL_PREFIX}..., are never matched"))
        return None
    if path in templates.methods:
        return FoundPath(path, {})
    found = None if "{" in path else templates.find(path)
    if found is None:
        near = _nearest(path, templates.methods)
        issues.append(
            ("path", f"the service has no path {path[:200]!r}; the nearest is {near!r}; GET /openapi.json lists all")
        )
    return found


def _check_method(method: str | None, found: FoundPath | None, templates: PathTemplates, issues: Issues) -> None:
    if method is None:
        return
    known = templates.all_methods() if found is None else templates.methods[found.template]
    if method.upper() not in known:
        where = "no path of the service has" if found is None else f"{found.template} does not have"
        issues.append(("method", f"{where} the method {method[:20]!r}; it is one of: {', '.join(sorted(known))}"))


def _header(name: str, value: str | None, issues: Issues) -> _Header:
    if not _HEADER_NAME.fullmatch(name):
        issues.append((f"headers.{name[:40]}", "is no name of a header"))
        return _Header(b"", value)
    if name.lower() in SECRET_HEADERS:
        issues.append((f"headers.{name}", "holds a secret: match by api_key or account_id instead"))
    return _Header(name.lower().encode(), value)


def _fits(parts: Sequence[str], text: str) -> bool:
    """Whether a text has these parts with anything between them; in linear time, as a regular expression has not."""
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PATH_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path)))


def _nearest(path: str, templates: Iterable[str]) -> str:
    """The template that is most like a path; what stands for a parameter does not count."""
    given = path[:200].split("/")

    def likeness(template: str) -> float:
        parts = template.split("/")
        filled = [
            own if part.startswith("{") else part for part, own in zip_longest(parts, given[: len(parts)], fillvalue="")
        ]
        return difflib.SequenceMatcher(None, "/".join(filled), "/".join(given)).ratio()

    return max(templates, key=likeness)


def _list(ids: Sequence[str]) -> str | None:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "") or None
