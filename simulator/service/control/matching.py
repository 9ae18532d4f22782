"""Which requests are meant, by method, path, device and account: for faults, and for what the request log is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qsl, unquote

from pydantic import Field
from pydantic_core import from_json
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from agent.wire.models import Sent, Text
from simulator.service.caller import Caller, caller_named
from simulator.service.control.accounts import find_account
from simulator.service.db import one
from simulator.service.errors import ApiError, invalid_all, nearest
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX

if TYPE_CHECKING:
    from simulator.service.service import Service

_NAMED_MAX: Final = 1_000
"""Devices of one request: a batch has 500 readings at most."""


class RequestMatch(Sent):
    """Every member that is given has to fit; one that is left out fits every request."""

    method: Annotated[Text | None, Field(description="Such as `POST`.")] = None
    path: Annotated[
        Text | None,
        Field(description="A path as the document has it, `/devices/{device_id}/commands`, or with ids in it."),
    ] = None
    device_id: Annotated[
        Text | None, Field(description="A device that the path, the query or the JSON body of the request names.")
    ] = None
    account_id: Annotated[
        Text | None, Field(description="The account that the key or token belongs to: its id, its name or a key.")
    ] = None


class Paths:
    """The paths of the API, all but the control paths.

    Args:
        routes: of the application.

    Attributes:
        methods: template -> its methods; OPTIONS is of every path.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self.methods: dict[str, set[str]] = {}
        for route in routes:
            if isinstance(route, Route) and not route.path.startswith((CONTROL_PREFIX, CONSOLE_PREFIX)):
                self.methods.setdefault(route.path, {"OPTIONS"}).update(route.methods or ())
        self._patterns = [(_pattern(path), path) for path in self.methods]

    def find(self, path: str) -> tuple[str | None, dict[str, str]]:
        """The template of a path as it was sent, and what stands for its parameters; None when there is no such."""
        if path in self.methods:
            return path, {}
        for pattern, template in self._patterns:
            if found := pattern.fullmatch(path):
                return template, {name: unquote(value) for name, value in found.groupdict().items()}
        return None, {}


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a request is compared.

    Attributes:
        path: as it was sent, percent-encoded.
        account: row of the account that the key or token belongs to, whether or not its secret is right.
        caller: the public key, or whom the token speaks for.
    """

    method: str
    path: str
    device_ids: Sequence[str] = ()
    account: int | None = None
    caller: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One member that does not fit: what is wanted, and what the request has."""

    field: str
    wanted: str | None
    found: str | None


@dataclass(frozen=True, slots=True)
class Matcher:
    """A match whose names exist.

    Attributes:
        account: row of the account that is named.
    """

    wanted: RequestMatch
    account: int | None
    _path: re.Pattern[str] | None

    def differences(self, request: Facts) -> list[Difference]:
        """What does not fit; nothing when the request is meant."""
        wanted, found = self.wanted, []
        if wanted.method is not None and wanted.method.upper() != request.method:
            found.append(Difference("method", wanted.method.upper(), request.method))
        if self._path is not None and not self._path.fullmatch(request.path):
            found.append(Difference("path", wanted.path, request.path))
        if wanted.device_id is not None and wanted.device_id not in request.device_ids:
            found.append(Difference("device_id", wanted.device_id, ", ".join(request.device_ids[:5]) or None))
        if self.account is not None and self.account != request.account:
            found.append(Difference("account_id", wanted.account_id, request.caller))
        return found


def make_matcher(service: Service, wanted: RequestMatch, place: str = "match.") -> Matcher:
    """What requests can be held against.

    Args:
        service: whose paths, accounts and devices may be named.
        wanted: the match as it was sent.
        place: what stands before a member's name in the errors.

    Raises:
        ApiError: 400: each member that names nothing that exists.
    """
    faults = []
    sql, paths = service.db.sql, service.paths
    template = None if wanted.path is None else paths.find(wanted.path)[0]
    if wanted.path is not None and template is None:
        near = nearest(wanted.path, paths.methods)
        faults.append(("path", f"the service has no path {wanted.path[:200]!r}{near}; GET /openapi.json lists all"))
    methods = paths.methods.get(template or "") or frozenset().union(*paths.methods.values())
    if wanted.method is not None and wanted.method.upper() not in methods:
        faults.append(("method", f"is none of {', '.join(sorted(methods))}"))
    is_device = "SELECT 1 FROM devices WHERE id = ? AND removed_at IS NULL"
    if wanted.device_id is not None and one(sql, is_device, (wanted.device_id,)) is None:
        faults.append(("device_id", f"there is no device {wanted.device_id[:80]!r}"))
    account = None
    if wanted.account_id is not None:
        try:
            account = find_account(sql, wanted.account_id)["row"]
        except ApiError:
            faults.append(("account_id", f"there is no account with the id, key or name {wanted.account_id[:80]!r}"))
    if faults:
        raise invalid_all([(place + field, issue) for field, issue in faults])
    return Matcher(wanted, account, None if wanted.path is None else _pattern(wanted.path))


def read_facts(service: Service, scope: Scope, body: bytes, caller: Caller | None = None) -> Facts:
    """What a match looks at of a request.

    Args:
        service: whose paths and accounts are meant.
        scope: of the request; what of it is read are method, path, query and headers.
        body: empty where nobody asks for devices.
        caller: who sent it, where that is known; else who the headers name.
    """
    caller = caller or caller_named(service, scope)
    path = scope["raw_path"].decode("latin-1")
    device_ids = _device_ids(service.paths.find(path)[1], scope["query_string"], body)
    account, name = (None, None) if caller is None else (caller.account, caller.api_key)
    return Facts(scope["method"], path, device_ids, account, name)


def _device_ids(ids: Mapping[str, str], query: bytes, body: bytes) -> tuple[str, ...]:
    """The devices that a request names, in its path, its query and its JSON body: an object, or an array of them."""
    found = [ids["device_id"]] if "device_id" in ids else []
    found += [value for name, value in parse_qsl(query.decode("latin-1")) if name == "device_id"]
    try:
        value: Any = from_json(body) if body else None
    except ValueError:
        value = None
    items = value if isinstance(value, list) else [value]
    found += [
        one["device_id"]
        for one in items[:_NAMED_MAX]
        if isinstance(one, dict) and isinstance(one.get("device_id"), str)
    ]
    return tuple(dict.fromkeys(found))


def _pattern(path: str) -> re.Pattern[str]:
    """What fits a path, each ``{name}`` of it standing for one segment."""
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path)))
