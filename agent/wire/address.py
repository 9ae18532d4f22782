"""Names and addresses of machines, as people write them: read in one way and written in one way."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_CHARACTERS: Final = 253


def read_host(text: str) -> str:
    """A host's name or IP address, alone; an IPv6 address may stand in brackets.

    Raises:
        ValueError: it is none; the text says what to write.
    """
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    else:
        return host
    if "@" in text:
        raise ValueError("take user name and password out: they have keys of their own")
    if len(text) > _CHARACTERS or not _NAME.fullmatch(text.encode("idna").decode() if not text.isascii() else text):
        raise ValueError("write the name or address alone, such as gateway.example.com or ::1; a port has its own key")
    return text


def host_and_port(text: str) -> tuple[str, int | None]:
    """Host and port of HOST or HOST:PORT; no port where none is given. ``::1`` and ``[::1]:8883`` are read too.

    Raises:
        ValueError: it is no such address.
    """
    with contextlib.suppress(ValueError):
        return read_host(text), None
    advice = f"{text!r} is no address; write it as HOST or HOST:PORT, with IPv6 as [ADDRESS]:PORT"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise ValueError(advice) from None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username or port is None:
        raise ValueError(advice)
    return read_host(parts.hostname), port


def read_url(text: str) -> SplitResult:
    """The parts of an address of HTTP, without user, query and fragment.

    Raises:
        ValueError: it is no such address; the text says what to write.
    """
    advice = "write it as https://HOST or https://HOST/PATH"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(advice) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "%" in parts.hostname or port == 0:
        raise ValueError(advice)
    if parts.username or parts.password:
        raise ValueError("take the user name and password out of the address; keys go into files (see auth)")
    if "?" in text or "#" in text:  # also with nothing behind it: a path that follows would not be one
        raise ValueError("take everything from '?' or '#' on out of the address")
    read_host(parts.hostname)
    return parts


def authority(host: str, port: int) -> str:
    """HOST:PORT as it stands in an address, with the brackets of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_machine(host: str) -> bool:
    """True for names and addresses that never leave this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
