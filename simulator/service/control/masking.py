"""Takes secrets out of what the request log shows.

Headers, members and form fields go by their names, and whatever looks like a key or token of this service by its look,
wherever it stands. What has no secret comes out as it went in, byte for byte.
"""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import unquote, unquote_plus

from agent.wire.secret import MASK, redact

_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|credential|authorization|cookie|private_?key|label_key|csrf|code_?verifier|api_?key"
    r"|^(?:pass|pwd|pin|psk)$"
)
_HINTS: Final = re.compile(
    r"pass|pwd|pin\"|psk|secret|token|credential|authorization|cookie|private|label[_-]key|csrf|verifier|api[_-]?key"
    r"|bearer|basic |\\u|msk_|dat_|pcs_",
    re.IGNORECASE,
)
"""Each secret name has one of these, and so has what goes by its look: a body without one is shown as it is."""
_NO_SECRETS: Final = frozenset({"token_type", "token_type_hint", "token_endpoint", "max_tokens"})
_OF_FORMS: Final = frozenset({"code", "state"})
"""Secrets of partner access in a query or a form; as members of JSON they are anybody's."""
_OF_OWN_MAKE: Final = re.compile(r"pcs_[\w.~+/=-]+")
_PUBLIC: Final = re.compile(r"mk_[!-~]+")
_MEMBER: Final = re.compile(r'"((?:[^"\\]|\\.){0,120}+)"\s*:\s*')
"""Bounded, or a body of quotes would be looked through from each of them to its end."""
_FIELD: Final = re.compile(r"(?:^|(?<=[&?;\s]))([^=&?;\s]+)=([^&#\s\"'<>]*)")
_FILLED_IN: Final = re.compile(r'(<input\b[^>]{0,300}\btype="(?:hidden|password)"[^>]{0,300}\bvalue=")[^"]*')
_ADDRESSES: Final = frozenset({"location", "referer", "link"})
_DECODER: Final = json.JSONDecoder()


def is_secret(name: str) -> bool:
    """Whether a member, field or header of this name holds a secret."""
    name = name.lower().replace("-", "_")
    return name not in _NO_SECRETS and _SECRET_NAME.search(name) is not None


def mask_header(name: str, value: str) -> str:
    """The value of a header."""
    name = name.lower()
    if name in {"authorization", "proxy-authorization"}:
        scheme, space, _ = value.partition(" ")
        return scheme + space + MASK if space else MASK
    if name == "x-api-key":
        return value if _PUBLIC.fullmatch(value) else MASK
    if name in _ADDRESSES:
        return mask_fields(value)
    if name == "www-authenticate":
        return value  # the service's own; "Bearer realm" looks like a token
    is_session = re.search(r"(?:^|-)(?:auth|session|signature)", name) is not None
    return MASK if name != "idempotency-key" and (is_session or is_secret(name)) else mask_keys(value)


def mask_path(path: str) -> str:
    """A path, percent-encoded."""
    return "/".join(MASK if _has_key(unquote(part)) else part for part in path.split("/"))


def mask_fields(text: str) -> str:
    """``name=value`` pairs of a query, a form or an address."""
    return mask_keys(_FIELD.sub(_mask_field, text))


def mask_body(text: str, *, is_partner_access: bool = False) -> str:
    """A body: JSON, a form, a page, events or any other text; it may be cut off.

    Args:
        text: each byte a character, or decoded.
        is_partner_access: of the OAuth endpoints, where a member ``code`` is a secret.
    """
    is_json = text[:1] in {"{", "["}
    if is_json and not is_partner_access and not _HINTS.search(text):
        return text
    if is_json:
        return mask_keys(_mask_members(text, _OF_FORMS if is_partner_access else frozenset()))
    return mask_fields(_FILLED_IN.sub(rf"\g<1>{MASK}", _mask_members(text, frozenset())))


def mask_keys(text: str) -> str:
    """A text without what looks like a key or a token."""
    return _OF_OWN_MAKE.sub(MASK, redact(text))


def _has_key(text: str) -> bool:
    return mask_keys(text) != text


def _mask_members(text: str, also: frozenset[str]) -> str:
    """JSON text, whole or cut off, with another value for each secret member."""
    parts, done = [], 0
    for found in _MEMBER.finditer(text):
        if found.start() < done or not _is_secret_member(found[1], also):
            continue
        end = _end_of_value(text, found.end())
        if _says_nothing(text[found.end() : end], found[1]):
            continue
        parts += [text[done : found.end()], f'"{MASK}"']
        done = end
    return "".join([*parts, text[done:]])


def _is_secret_member(written: str, also: frozenset[str]) -> bool:
    try:
        name = json.loads(f'"{written}"') if "\\" in written else written
    except ValueError:
        return True  # who knows what it says
    return is_secret(name) or name in also


def _end_of_value(text: str, begin: int) -> int:
    try:
        return _DECODER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return len(text)  # cut off or no JSON: where it ends nobody can say


def _says_nothing(value: str, name: str) -> bool:
    """Whether a value is empty, yes or no, or the public half of a key pair."""
    if value in {"null", "true", "false", '""', "[]", "{}"}:
        return True
    return name.lower().replace("-", "_").endswith("api_key") and _PUBLIC.fullmatch(value.strip('"')) is not None


def _mask_field(found: re.Match[str]) -> str:
    name, value = unquote_plus(found[1]), found[2]
    if not value or _PUBLIC.fullmatch(value):
        return found[0]
    hides_a_key = "%" in value and _has_key(unquote_plus(value))
    return f"{found[1]}={MASK}" if is_secret(name) or name in _OF_FORMS or hides_a_key else found[0]
