"""Profile ``link``: ``https://HOST/onboard?p=PRODUCT&d=IDENTIFIER&s=SIGNATURE``, a page for phones without the app.

All of it is lower case but the values: ``HTTPS://`` opens nothing on some phones. Values are percent-encoded UTF-8
(RFC 3986) in which only letters, digits and ``-._~`` stand for themselves. A host outside ASCII is written as its
``xn--`` form, so that a look-alike letter never gets through.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from agent.errors import InvalidQr
from simulator.wire.qr.label import LINK, LabelText

_TEXT: Final = re.compile(r"https://([^/?#]*)/onboard\?p=([^&#]*)&d=([^&#]*)(?:&s=([^&#]*))?")
_HOST_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST_MAX: Final = 253
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PORT_MAX: Final = 65535


def host_fault(host: str) -> str | None:
    """Why a link must not lead to this host: one sentence, or None when it may."""
    name, colon, port = host.partition(":")
    if name != name.lower():
        return f"the host {name!r:.80} must be lower case: some phones open nothing else"
    if len(name) > _HOST_MAX or not all(_HOST_LABEL.fullmatch(part) for part in name.split(".")):
        return f"{name!r:.80} is no host name: give one such as onboard.example.com (RFC 1123), without https://"
    if colon and not (_PORT.fullmatch(port) and int(port) <= _PORT_MAX):
        return f"{port!r:.20} is no port: give 1 to {_PORT_MAX}"
    return None


def write(label: LabelText) -> str:
    """The text of a label in the link form.

    Raises:
        InvalidQr: ``wrong_host``, or a value has no UTF-8 form.
    """
    fault = host_fault(label.host)
    if fault is not None:
        raise InvalidQr("wrong_host", fault)
    sig = "" if label.sig is None else f"&s={_quote(label.sig)}"
    return f"https://{label.host}/onboard?p={_quote(label.product_id)}&d={_quote(label.device_identifier)}{sig}"


def read(text: str) -> LabelText:
    """The label in the text; its values are not checked yet.

    Raises:
        InvalidQr: ``not_a_link`` or ``wrong_host``.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidQr(
            "not_a_link", "the QR text is not a device label: a link is https://HOST/onboard?p=...&d=...&s=..."
        )
    host, *values = found.groups()
    fault = host_fault(host)
    if fault is not None:
        raise InvalidQr("wrong_host", fault)
    product_id, device_identifier, sig = (None if value is None else _unquote(value) for value in values)
    return LabelText(product_id or "", device_identifier or "", sig, LINK, host)


def _quote(value: str) -> str:
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise InvalidQr("wrong_type", "text must not contain a lone surrogate") from None


def _unquote(value: str) -> str:
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidQr("not_a_link", "a value in the link is not percent-encoded UTF-8") from None
