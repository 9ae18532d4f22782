"""``/_emulator/console-links``: a further link to the console, for another browser or a phone."""

from __future__ import annotations

import contextlib
import socket
from typing import Final
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from simulator.console.sessions import LINK_S, Sessions
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, Header, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.service import Service

PATH: Final = f"{CONTROL_PREFIX}console-links"
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what is listened on
_NOBODY: Final = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): nothing is sent there; the system only says by which way it would go."""
_NO_STORE: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"),)


class ConsoleLinkRecord(TypedDict):
    """A link that opens the console once. All addresses carry the same token.

    Attributes:
        url: on this machine, or under the public URL.
        network_urls: for other machines in the local network; empty where the service listens on this machine only.
        expires_in_s: how long it may be opened.
    """

    url: str
    network_urls: list[str]
    expires_in_s: int


def entry_path(token: str) -> str:
    """The path that opens the console."""
    return f"/?token={token}"


def network_addresses() -> list[str]:
    """This machine's addresses in its networks, the one of the default route first."""
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_NOBODY)
        found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return [address for address in dict.fromkeys(found) if not address.startswith(("127.", "0."))]


def make_record(service: Service, token: str) -> ConsoleLinkRecord:
    """The addresses of a link."""
    config = service.config
    network: list[str] = []
    if config.host in _EVERYWHERE:
        own = urlsplit(service.public_url)
        network = [f"{own.scheme}://{address}:{own.port}{entry_path(token)}" for address in network_addresses()]
    return {"url": service.public_url + entry_path(token), "network_urls": network, "expires_in_s": LINK_S}


def make_endpoints(sessions: Sessions) -> tuple[Endpoint, ...]:
    """The endpoints of a console with these sessions."""

    async def add_link(call: Call) -> Answer:
        """Make a new link that opens the console once."""
        call.query(frozenset())
        record = make_record(call.service, sessions.make_link())
        return Answer(201, ok(record).body, _NO_STORE)

    return (
        Endpoint(
            "POST",
            PATH,
            add_link,
            "add_console_link",
            f"Make a link that opens the console once, within {LINK_S // 60} minutes",
            "control",
            (Reply(201, "The link", ConsoleLinkRecord), Reply(400, "The query is not valid", ERROR)),
            public=True,
        ),
    )
