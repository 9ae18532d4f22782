"""What a server announces: ``GET /.well-known/device-service``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.errors import UnexpectedAnswer
from agent.wire import extensions, paths
from agent.wire.connection import Connection
from agent.wire.faults import portal_text

_DECIDED: Final = frozenset({*range(200, 300), *range(400, 500), 501} - {401, 408, 425, 429})
"""Statuses that say something of the path that was asked, whoever sends them."""
_VERSION_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the discovery document says.

    Attributes:
        extensions: their names; none for a plain server.
        version: ``version`` of the document, else the ``Server`` header; empty without both.
    """

    extensions: frozenset[str] = extensions.NONE
    version: str = ""


def ask_for_announcement(connection: Connection) -> Announcement:
    """Ask for the discovery document.

    A plain server announces nothing: it answers any 4xx but 401, 408, 425 and 429, 501, or a 2xx without such a list;
    also a web page, where nobody else can have sent it (:attr:`~agent.wire.connection.Connection.is_certain`).

    Raises:
        ServiceError: not known: no answer, a captive portal, wrong credentials, a quota, a failing service.
    """
    answer = connection.request("GET", paths.DISCOVERY, accepts=_DECIDED)
    if not 200 <= answer.status < 300:
        return read_announcement(None, answer.headers.get("server", ""))
    value = None if answer.is_page else answer.json_or_none()
    is_readable = value is not None or not answer.content.strip()
    if not is_readable and not connection.is_certain:
        raise UnexpectedAnswer(portal_text(answer.source, answer.status), answer.status)
    return read_announcement(value, answer.headers.get("server", ""))


def read_announcement(value: object, server: str = "") -> Announcement:
    """The announcement in a JSON value, whatever it is.

    Args:
        value: the document.
        server: the ``Server`` header.
    """
    document = value if isinstance(value, dict) else {}
    names, version = document.get("extensions"), document.get("version")
    return Announcement(
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else extensions.NONE,
        (version if isinstance(version, str) and version else server)[:_VERSION_MAX],
    )
