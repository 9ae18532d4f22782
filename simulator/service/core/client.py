"""A partner application, as the flow sees it, and what may be registered as one."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from simulator.service.core.scopes import SCOPES

AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105 - a grant type of RFC 6749
GRANT_TYPES: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN)

SECRET_CHARACTERS: Final = 32
"""The least length of a secret that is given: 160 random bits fit into it in any usual writing."""
REDIRECT_URIS: Final = 20
_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,100}", re.ASCII)
_SECRET: Final = re.compile(rf"[!-~]{{{SECRET_CHARACTERS},256}}", re.ASCII)
_URI: Final = re.compile(r"[!-~]{1,2000}", re.ASCII)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_NAME_CHARACTERS: Final = 100
_DESCRIPTION_CHARACTERS: Final = 500


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret with many random bits: of a key pair, a client, a code or a token."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Client:
    """A registered partner application.

    Attributes:
        client_id: how it names itself.
        name: what users know it by.
        redirect_uris: where a browser may be sent to; compared to the letter.
        scopes: what it may ask for.
        secret_hash: SHA-256 of its secret; None for a public client, which proves itself by PKCE.
        grant_types: of the token endpoint.
        description: one sentence for the consent page.
        home_url: where a user reads more about it.
        logo_url: its picture.
    """

    client_id: str
    name: str
    redirect_uris: tuple[str, ...]
    scopes: tuple[str, ...]
    secret_hash: bytes | None = None
    grant_types: tuple[str, ...] = GRANT_TYPES
    description: str | None = None
    home_url: str | None = None
    logo_url: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether it keeps no secret: a single-page or mobile application."""
        return self.secret_hash is None

    def has_secret(self, secret: str) -> bool:
        """Whether this is its secret; compared in constant time."""
        return self.secret_hash is not None and hmac.compare_digest(self.secret_hash, hash_secret(secret))


SIGN_IN: Final = Client("sign-in", "Sign-in with a password", (), SCOPES, grant_types=(REFRESH_TOKEN,))
"""Whose tokens ``POST /auth/signin`` answers: they are refreshed with this ``client_id``. It has no redirect URI, so
that it never takes part in an authorization."""


def check_client(client: Client) -> list[str]:
    """What speaks against registering it, one sentence each."""
    faults = []
    if not _ID.fullmatch(client.client_id) or client.client_id == SIGN_IN.client_id:
        faults.append(f"client_id must have 1 to 100 letters, digits and -._~, and not be {SIGN_IN.client_id!r}")
    if not 0 < len(client.name) <= _NAME_CHARACTERS or not client.name.isprintable() or not client.name.strip():
        faults.append(f"name must have 1 to {_NAME_CHARACTERS} printable characters")
    if not 0 < len(client.redirect_uris) <= REDIRECT_URIS:
        faults.append(f"redirect_uris must be 1 to {REDIRECT_URIS} addresses")
    faults += [f"redirect_uris: {fault}" for uri in client.redirect_uris if (fault := check_redirect_uri(uri))]
    unknown = [scope for scope in client.scopes if scope not in SCOPES]
    if unknown or not client.scopes:
        faults.append(f"scopes must be some of {', '.join(SCOPES)}")
    if AUTHORIZATION_CODE not in client.grant_types or set(client.grant_types) - set(GRANT_TYPES):
        faults.append(f"grant_types must be {AUTHORIZATION_CODE!r}, with or without {REFRESH_TOKEN!r}")
    if client.description is not None and len(client.description) > _DESCRIPTION_CHARACTERS:
        faults.append(f"description must have at most {_DESCRIPTION_CHARACTERS} characters")
    for name, url in (("home_url", client.home_url), ("logo_url", client.logo_url)):
        if url is not None and origin_of(url) is None:
            faults.append(f"{name} must be an https address (http on this machine only)")
    return faults


def check_secret(secret: str) -> str | None:
    """What speaks against a secret that is given."""
    if _SECRET.fullmatch(secret):
        return None
    return f"client_secret must have {SECRET_CHARACTERS} to 256 visible ASCII characters; leave it out to have one made"


def check_redirect_uri(uri: str) -> str | None:
    """What speaks against sending a browser there (RFC 9700, section 4.1.3; RFC 8252, section 7)."""
    shown = f"{uri!r:.120}"
    if not _URI.fullmatch(uri):
        return f"{shown} must be an absolute address of visible ASCII characters"
    scheme, colon, rest = uri.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme) or "#" in rest or "\\" in rest:
        return f"{shown} must be an absolute address with a lower-case scheme and without a fragment"
    if scheme in {"http", "https"}:
        if origin_of(uri) is None:
            return f"{shown} must be https with a host; http is for this machine only (127.0.0.1, [::1], localhost)"
    elif "." not in scheme:
        return f"{shown}: a scheme of one's own is a reversed domain name, such as com.example.app:/callback"
    return None


def origin_of(url: str) -> str | None:
    """``scheme://host[:port]`` as a browser writes it; None unless it is https, or http on the machine itself."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.username is not None or parts.password is not None or not url.isascii():
        return None
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return None
    shown = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{shown}" + ("" if port in {None, default} else f":{port}")


def is_loopback(host: str) -> bool:
    """Whether this host is the machine that it is said on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def origins_of(uris: Sequence[str]) -> frozenset[str]:
    """The web origins among some redirect URIs."""
    return frozenset(origin for uri in uris if (origin := origin_of(uri)) is not None)
