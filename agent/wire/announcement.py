"""What a server says of itself: ``GET /.well-known/device-service``."""

from __future__ import annotations

from typing import Final

from agent.errors import ErrorAnswer, UnexpectedAnswer
from agent.frozen import dataclass
from agent.wire import extensions, paths
from agent.wire.connection import Connection

# Too early, too slow, too often, or not signed in: no word about the path.
_UNDECIDED: Final = frozenset({401, 408, 425, 429})
_NOT_IMPLEMENTED: Final = 501
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

    A plain server announces nothing: it answers any 4xx but 401, 408, 425 and 429, 501, a 2xx without such a list, or a
    web page from a service that is proved to be one.

    Raises:
        ServiceError: not known: no answer, a captive portal, wrong credentials, a quota, a failing service.
    """
    value: object = None
    try:
        value = connection.request("GET", paths.DISCOVERY).json()
    except ErrorAnswer as error:
        if error.status in _UNDECIDED or (error.status >= 500 and error.status != _NOT_IMPLEMENTED):  # noqa: PLR2004
            raise
    except UnexpectedAnswer as error:
        status = error.status or 0
        is_refused = 400 <= status < 500 and status not in _UNDECIDED  # noqa: PLR2004 - RFC 9110, section 15.5
        if not (is_refused or (200 <= status < 300 and connection.prove())):  # noqa: PLR2004
            raise
    return read_announcement(value, connection.last_headers.get("server", ""))


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
