"""Takes secrets out of requests and answers before they are kept.

Headers go by their names. In bodies and queries a member goes by its name too, and whatever looks like a key of this
service goes by its look. A body without one of :data:`_HINTS` is kept as it is: one search, as nearly always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_plus

from agent.wire.secret import MASK, redact
from simulator.service.answers import Header

_MASK: Final = MASK.encode()
_RULES_MAX: Final = 1_000
_PUBLIC: Final = re.compile(r"mk_[!-~]+")

# Each secret name, in lower case, holds one of the hints; and so does what redact() knows by its look.
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|credential|authorization|cookie|private_?key|label_key|csrf|code_?verifier|api_?key"
    r"|^(?:pass|pwd|pin|psk)$"
)
_HINTS: Final = re.compile(
    rb"pass|pwd|pin\"|psk|secret|token|credential|authorization|cookie|private|label_key|csrf|verifier|api_?key"
    rb"|msk_|dat_|pcs_|bearer|basic |\\u"
)
_NO_SECRETS: Final = frozenset({"token_type", "token_type_hint", "token_endpoint", "max_tokens"})
_OF_FORMS: Final = frozenset({"code", "state"})
"""Of a query or a form these are partner access's; as members of JSON they are anybody's."""
_OF_OWN_MAKE: Final = re.compile(r"pcs_[\w.~+/=-]+")

_MEMBER: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*')
_FIELD: Final = re.compile(r"(?:^|(?<=[&?;\s]))([^=&?;\s]+)=([^&#\s\"'<>]*)")
_FILLED_IN: Final = re.compile(r'(<input\b[^>]*\btype="(?:hidden|password)"[^>]*\bvalue=")[^"]*')
_DECODER: Final = json.JSONDecoder()
_JSON_BEGINS: Final = b"{["

# What becomes of a header's value.
_KEEP, _HIDE, _HIDE_CREDENTIALS, _PUBLIC_KEY, _ADDRESS = range(5)
_HEADER_RULES: Final[Mapping[bytes, int]] = {
    b"authorization": _HIDE_CREDENTIALS,
    b"proxy-authorization": _HIDE_CREDENTIALS,
    b"cookie": _HIDE,
    b"set-cookie": _HIDE,
    b"x-secret-key": _HIDE,
    b"x-api-key": _PUBLIC_KEY,
    b"idempotency-key": _KEEP,
    b"www-authenticate": _KEEP,
    b"location": _ADDRESS,
    b"referer": _ADDRESS,
    b"origin": _KEEP,
}
_ADDRESS_HINT: Final = re.compile(rb"code|state=|key=|msk_|dat_|pcs_|token|secret|pass|%")


def mask_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers, with ``**********`` where a secret stands."""
    rules = _HEADER_RULES
    kept: list[Header] = []
    for header in headers:
        rule = rules.get(header[0])
        if rule is None:
            rule = _rule_by_name(header[0])
        kept.append(header if rule == _KEEP else (header[0], _mask_value(rule, header[1])))
    return kept


@lru_cache(maxsize=_RULES_MAX)
def _rule_by_name(name: bytes) -> int:
    """The rule of a header that is not in the table."""
    text = name.decode("latin-1").replace("-", "_")
    return _HIDE if is_secret(text) or re.search(r"(?:^|_)(?:auth|session|signature)", text) else _KEEP


def keeps_value(name: str) -> bool:
    """Whether the log keeps the value of a header."""
    raw = name.lower().encode()
    rule = _HEADER_RULES.get(raw)
    return (_rule_by_name(raw) if rule is None else rule) in {_KEEP, _PUBLIC_KEY}


def _mask_value(rule: int, value: bytes) -> bytes:
    if rule == _PUBLIC_KEY:
        return value if _PUBLIC.fullmatch(value.decode("latin-1")) else _MASK
    if rule == _ADDRESS:
        return mask_fields(value) if _ADDRESS_HINT.search(value) else value
    if rule == _HIDE_CREDENTIALS:
        scheme, space, credentials = value.partition(b" ")
        return scheme + space + _MASK if credentials else _MASK
    return _MASK


def is_secret(name: str) -> bool:
    """Whether a member, field or header of this name holds a secret."""
    name = name.lower().replace("-", "_")
    return name not in _NO_SECRETS and _SECRET_NAME.search(name) is not None


def mask_path(path: bytes) -> bytes:
    """A path without what looks like a key; itself when there is none."""
    if b"_" not in path:
        return path
    return "/".join([_OF_OWN_MAKE.sub(MASK, redact(one)) for one in path.decode("latin-1").split("/")]).encode(
        "latin-1"
    )


def mask_query(query: bytes) -> bytes:
    """A query without secrets; itself when there is none."""
    return mask_fields(query) if _ADDRESS_HINT.search(query.lower()) else query


def mask_body(body: bytes, *, is_partner_access: bool = False) -> bytes:
    """A body without secrets; itself when there is none.

    Args:
        body: JSON, a form, a page or any text; it may be cut off.
        is_partner_access: of the OAuth endpoints, where a member ``code`` is a secret.
    """
    if not body:
        return body
    is_json = body[0] in _JSON_BEGINS
    if is_json and not is_partner_access and _HINTS.search(body.lower()) is None:
        return body
    text = body.decode("latin-1")  # each byte a character: whatever it is comes out as it went in
    if is_json:
        text = _mask_members(text, _OF_FORMS if is_partner_access else frozenset())
    else:
        text = _mask_fields(_FILLED_IN.sub(rf"\g<1>{MASK}", _mask_members(text, frozenset())))
    return _OF_OWN_MAKE.sub(MASK, redact(text)).encode("latin-1")


def _mask_members(text: str, also: frozenset[str]) -> str:
    """JSON text, whole or cut off, with another value for each secret member."""
    parts: list[str] = []
    done = 0
    for found in _MEMBER.finditer(text):
        if found.start() < done or not _is_secret_member(found[1], also):
            continue
        end = _end_of_value(text, found.end())
        if _says_nothing(text[found.end() : end], found[1]):
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


def _says_nothing(value: str, name: str) -> bool:
    """Whether a value is empty, yes or no, or the public half of a key pair."""
    if value in {"null", "true", "false", '""', "[]", "{}"}:
        return True
    return name.lower().replace("-", "_").endswith("api_key") and _PUBLIC.fullmatch(value.strip('"')) is not None


def mask_fields(raw: bytes) -> bytes:
    """``name=value`` pairs of a query, a form or an address without secrets."""
    return _OF_OWN_MAKE.sub(MASK, redact(_mask_fields(raw.decode("latin-1")))).encode("latin-1")


def _mask_fields(text: str) -> str:
    return _FIELD.sub(_mask_field, text)


def _mask_field(found: re.Match[str]) -> str:
    name = unquote_plus(found[1])
    if not found[2] or not (is_secret(name) or name in _OF_FORMS) or _PUBLIC.fullmatch(found[2]):
        return found[0]
    return f"{found[1]}={MASK}"
