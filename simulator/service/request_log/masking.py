"""Takes secrets out of requests and answers before they are kept.

Headers go by their names. In bodies and queries a member goes by its name too, and whatever looks like a key of this
service goes by its look. A body without one of :data:`_HINTS` is kept as it is, as nearly always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote, unquote_plus

from agent.wire.secret import MASK, redact
from simulator.service.answers import Header

_MASK: Final = MASK.encode()
_RULES_MAX: Final = 1_000
_VALUE_MAX: Final = 4_096
"""Of a longer header the beginning is kept."""
_BETWEEN: Final = b"\n"
"""What no name and no value of a header holds: RFC 9110, section 5.5."""
_PUBLIC: Final = re.compile(r"mk_[!-~]+")
_PUBLIC_VALUE: Final = re.compile(rb"mk_[!-~]+")

# Each secret name, in lower case, holds one of the hints; and so does what redact() knows by its look.
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|credential|authorization|cookie|private_?key|label_key|csrf|code_?verifier|api_?key"
    r"|^(?:pass|pwd|pin|psk)$"
)
_LOOKS: Final = (b"msk_", b"dat_", b"pcs_")
_HINTS: Final = re.compile(
    rb"pass|pwd|pin\"|psk|secret|token|credential|authorization|cookie|private|label[_-]key|csrf|verifier|api[_-]?key"
    rb"|bearer|basic |\\u|msk_|dat_|pcs_",
    re.IGNORECASE,
)
_ADDRESS_HINTS: Final = re.compile(rb"[?&;\s]code=|state=|key=|token|secret|pass|%|msk_|dat_|pcs_", re.IGNORECASE)
_NO_SECRETS: Final = frozenset({"token_type", "token_type_hint", "token_endpoint", "max_tokens"})
_OF_FORMS: Final = frozenset({"code", "state"})
"""Of a query or a form these are partner access's; as members of JSON they are anybody's."""
_OF_OWN_MAKE: Final = re.compile(r"pcs_[\w.~+/=-]+")

_MEMBER: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*')
_FIELD: Final = re.compile(r"(?:^|(?<=[&?;\s]))([^=&?;\s]+)=([^&#\s\"'<>]*)")
_FILLED_IN: Final = re.compile(r'(<input\b[^>]*\btype="(?:hidden|password)"[^>]*\bvalue=")[^"]*')
_DECODER: Final = json.JSONDecoder()
_JSON_BEGINS: Final = b"{["

_Mask = Callable[[bytes], bytes]
"""A header's value -> what is kept of it."""


def _hide(_value: bytes) -> bytes:
    return _MASK


def _hide_credentials(value: bytes) -> bytes:
    scheme, space, credentials = value.partition(b" ")
    return scheme + space + _MASK if credentials else _MASK


def _keep_public_key(value: bytes) -> bytes:
    return value if _PUBLIC_VALUE.fullmatch(value) else _MASK


def _mask_address(value: bytes) -> bytes:
    return mask_fields(value) if _ADDRESS_HINTS.search(value) else value


_header_rules: dict[bytes, _Mask | None] = {
    b"authorization": _hide_credentials,
    b"proxy-authorization": _hide_credentials,
    b"cookie": _hide,
    b"set-cookie": _hide,
    b"x-secret-key": _hide,
    b"x-api-key": _keep_public_key,
    b"idempotency-key": None,
    b"www-authenticate": None,
    b"location": _mask_address,
    b"referer": _mask_address,
    b"origin": None,
}
"""Name of a header in lower case -> what its value goes through, None for nothing; the names that came are added."""


def _rule_of(name: bytes) -> _Mask | None:
    """The rule of a header, by what its name says where it is not in the table."""
    if name in _header_rules:
        return _header_rules[name]
    text = name.decode("latin-1").replace("-", "_")
    rule = _hide if is_secret(text) or re.search(r"(?:^|_)(?:auth|session|signature)", text) else None
    if len(_header_rules) < _RULES_MAX:
        _header_rules[name] = rule
    return rule


def mask_headers(headers: Iterable[Header]) -> bytes:
    """The headers as one text for :func:`read_headers`, with ``**********`` where a secret stands.

    One text takes less memory than its parts, and less time to let go of.
    """
    rules = _header_rules
    parts: list[bytes] = []
    for name, value in headers:
        rule = rules[name] if name in rules else _rule_of(name)
        parts.append(name)
        parts.append(value if rule is None else rule(value))
    text = _BETWEEN.join(parts)
    if len(text) > _VALUE_MAX:
        text = _BETWEEN.join([part[:_VALUE_MAX] for part in parts])
    return text


def read_headers(text: bytes) -> tuple[Header, ...]:
    """The headers that :func:`mask_headers` has put into a text."""
    parts = text.split(_BETWEEN) if text else []
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def keeps_value(name: str) -> bool:
    """Whether the log keeps the value of a header."""
    return _rule_of(name.lower().encode()) in {None, _keep_public_key}


def is_secret(name: str) -> bool:
    """Whether a member, field or header of this name holds a secret."""
    name = name.lower().replace("-", "_")
    return name not in _NO_SECRETS and _SECRET_NAME.search(name) is not None


def mask_path(path: bytes) -> bytes:
    """A path without what looks like a key, percent-encoded or not; itself when there is none."""
    if b"_" not in path and b"%" not in path:
        return path
    return "/".join([_mask_segment(one) for one in path.decode("latin-1").split("/")]).encode("latin-1")


def _mask_segment(segment: str) -> str:
    return MASK if _looks_secret(unquote(segment)) else segment


def _looks_secret(text: str) -> bool:
    return _without_keys(text) != text


def _without_keys(text: str) -> str:
    """A text without what looks like a key."""
    return _OF_OWN_MAKE.sub(MASK, redact(text))


def mask_query(query: bytes) -> bytes:
    """A query without secrets; itself when there is none."""
    return mask_fields(query) if query and _ADDRESS_HINTS.search(b"?" + query) else query


def mask_body(body: bytes, *, is_partner_access: bool = False) -> bytes:
    """A body without secrets; itself when there is none.

    Args:
        body: JSON, a form, a page or any text; it may be cut off.
        is_partner_access: of the OAuth endpoints, where a member ``code`` is a secret.
    """
    if not body:
        return body
    is_json = body[0] in _JSON_BEGINS
    if is_json and not is_partner_access and not _HINTS.search(body):
        return body
    text = body.decode("latin-1")  # each byte a character: whatever it is comes out as it went in
    if is_json:
        text = _mask_members(text, _OF_FORMS if is_partner_access else frozenset())
    else:
        text = _mask_fields(_FILLED_IN.sub(rf"\g<1>{MASK}", _mask_members(text, frozenset())))
    return _without_keys(text).encode("latin-1")


def _mask_members(text: str, also: frozenset[str]) -> str:
    """JSON text, whole or cut off, with another value for each secret member."""
    parts: list[str] = []
    done = 0
    for found in _MEMBER.finditer(text):
        if found.start() < done or not _is_secret_member(found[1], also):
            continue
        end = _end_of_value(text, found.end())
        if _is_uninformative(text[found.end() : end], found[1]):
            continue
        parts += [text[done : found.end()], f'"{MASK}"']
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def _is_secret_member(written: str, also: frozenset[str]) -> bool:
    name = written
    if "\\" in written:
        try:
            name = json.loads(f'"{written}"')
        except ValueError:
            return True  # who knows what it says
    return is_secret(name) or name in also


def _end_of_value(text: str, begin: int) -> int:
    try:
        return _DECODER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return len(text)  # cut off or no JSON: where it ends nobody can say


def _is_uninformative(value: str, name: str) -> bool:
    """Whether a value is empty, yes or no, or the public half of a key pair."""
    if value in {"null", "true", "false", '""', "[]", "{}"}:
        return True
    return name.lower().replace("-", "_").endswith("api_key") and _PUBLIC.fullmatch(value.strip('"')) is not None


def mask_fields(raw: bytes) -> bytes:
    """``name=value`` pairs of a query, a form or an address without secrets."""
    return _without_keys(_mask_fields(raw.decode("latin-1"))).encode("latin-1")


def _mask_fields(text: str) -> str:
    return _FIELD.sub(_mask_field, text)


def _mask_field(found: re.Match[str]) -> str:
    name, value = unquote_plus(found[1]), found[2]
    if not value or _PUBLIC.fullmatch(value):
        return found[0]
    hides_a_key = "%" in value and _looks_secret(unquote_plus(value))
    return f"{found[1]}={MASK}" if is_secret(name) or name in _OF_FORMS or hides_a_key else found[0]
