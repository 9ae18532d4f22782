"""Access to ``/_emulator/...``: for programs on this machine, and for no web page that a browser on it shows."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from agent.wire.secret import Secret
from simulator.service.addresses import HEALTH
from simulator.service.http_errors import HttpError

TOKEN_HEADER: Final = b"x-emulator-token"
OBSERVER: Final = (b"x-emulator-observer", b"1")
"""A header of who only looks at what a test does: not in the request log, meets no fault, counts for no quota."""
_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
_SAFE: Final = frozenset({"GET", "HEAD"})
_FOREIGN: Final = frozenset({b"cross-site", b"same-site"})


class ControlAccess:
    """Decides about requests to control paths from this machine.

    A browser carries requests of any page here. It says so in ``Origin`` and ``Sec-Fetch-Site``, and in a ``Host`` that
    was made to point here. A proxy carries requests of anybody, so what passes one needs the control token.

    Args:
        token: which every caller must send; None where only plain callers from loopback can come.
    """

    def __init__(self, token: Secret | None) -> None:
        self._token = token

    def check(self, scope: Scope, given: Mapping[bytes, bytes]) -> None:
        """Refuse what may come from a web page, or through a proxy without the token.

        Raises:
            HttpError: 403; its text says what is missing.
        """
        host = given.get(b"host", b"").decode("latin-1")
        origin = given.get(b"origin")
        if origin is not None and not _is_own(origin.decode("latin-1"), host):
            raise _forbidden("foreign_origin", "A web page of another origin sent this: control paths take none.")
        if scope["method"] not in _SAFE and given.get(b"sec-fetch-site", b"") in _FOREIGN:
            raise _forbidden("foreign_origin", "A web page of another site sent this: control paths take none.")
        if self._has_token(given):
            return
        if not is_loopback_host(host):
            text = f"Host is {host[:100]!r}: control paths are at 127.0.0.1, [::1] and localhost only."
            raise _forbidden("foreign_host", text)
        is_forwarded = not _FORWARDED.isdisjoint(given)
        if is_forwarded or (self._token is not None and scope["path"] != HEALTH):
            text = (
                "Send X-Emulator-Token with the control token (--control-token), which the service shows at its start."
            )
            raise _forbidden("control_token_required", text)

    def is_observer(self, scope: Scope) -> bool:
        """Whether a request says that it only looks on, and comes from who may use the control paths."""
        if OBSERVER not in scope["headers"] or not is_local(scope):
            return False
        try:
            self.check(scope, dict(scope["headers"]))
        except HttpError:
            return False
        return True

    def _has_token(self, given: Mapping[bytes, bytes]) -> bool:
        offered = given.get(TOKEN_HEADER)
        if self._token is None or offered is None:
            return False
        return hmac.compare_digest(offered, self._token.reveal().encode())


def is_local(scope: Scope) -> bool:
    """Whether the caller is on this machine."""
    client = scope.get("client")
    if client is None:
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    """Whether a ``Host`` header names this machine by a name that nobody else can give out."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_own(origin: str, host: str) -> bool:
    scheme, separator, place = origin.partition("://")
    return bool(separator) and scheme in {"http", "https"} and place.lower() == host.lower()


def _forbidden(error: str, text: str) -> HttpError:
    return HttpError(403, error, text)
