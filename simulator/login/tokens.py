"""A set of tokens with what is needed to renew it, and the text of a token file.

The file is JSON and belongs to whoever holds the tokens (``docs/oauth.md`` describes each member). A client's secret is
never in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

import httpx
from pydantic import ConfigDict

from agent.errors import InvalidMessage
from agent.wire.base import JsonObject, LooseTime, Received, ReceivedSecret, Sent, SentSecret, Text
from agent.wire.json_text import parse_json
from agent.wire.secret import Secret, never_show
from agent.wire.times import to_rfc3339

_FINGERPRINT_DIGITS: Final = 32
_LONGEST_S: Final = 10 * 366 * 86_400
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class RefreshTokens(Sent):
    """The same path with ``grant_type`` = ``refresh_token`` (specification, "Refresh"); both tokens are rotated."""

    grant_type: Literal["refresh_token"] = "refresh_token"
    refresh_token: SentSecret
    client_id: Text
    client_secret: SentSecret | None = None
    scope: str | None = None


class TokenAnswer(Received):
    """The token response of an authorization server (RFC 6749, section 5.1).

    Attributes:
        expires_in: seconds of validity.
        user: who signed in; only after ``POST /auth/signin``.
    """

    model_config = ConfigDict(coerce_numbers_to_str=False)

    access_token: ReceivedSecret
    token_type: str = "Bearer"  # noqa: S105 - a word of RFC 6750
    expires_in: int | None = None
    refresh_token: ReceivedSecret | None = None
    scope: str | None = None
    user: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class TokenSet:
    """What one sign-in gave, as it stands now. Times are seconds since the epoch.

    Attributes:
        base_url: the service that these tokens are for; they are sent nowhere else.
        client_id: the client that they were issued to.
        refresh_token: None when the service gave none; then nothing can be renewed.
        scope: what they may do, with spaces between.
        issuer: who issued them (RFC 8414); empty when the service did not say.
        token_endpoint: where they are renewed; empty for the specification's path.
        authorized_at: when the person signed in, by the service's clock; stays when tokens are renewed.
        issued_at, expires_at: of the access token, by the clock of the machine that received it.
    """

    base_url: str
    client_id: str
    access_token: Secret
    refresh_token: Secret | None = None
    scope: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    authorized_at: float | None = None
    issued_at: float | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        for token in (self.access_token, self.refresh_token):
            if token is not None:
                never_show(token.reveal())

    def renewed(self, answer: TokenAnswer, now_s: float) -> TokenSet:
        """This set with the new pair of ``answer``, received at ``now_s`` by this machine's clock.

        A service that leaves the refresh token or the scope out has left it as it was (RFC 6749, sections 5.1 and 6).
        """
        life_s = life_of(answer)
        return replace(
            self,
            access_token=answer.access_token,
            refresh_token=answer.refresh_token or self.refresh_token,
            scope=answer.scope or self.scope,
            issued_at=now_s,
            expires_at=None if life_s is None else now_s + life_s,
        )


def life_of(answer: TokenAnswer) -> float | None:
    """How long the access token lives, seconds; None when the answer has no such number above 0."""
    if answer.expires_in is None or answer.expires_in <= 0:
        return None
    return min(float(answer.expires_in), _LONGEST_S)


def is_token(secret: Secret) -> bool:
    """Whether it can be sent as a token: visible ASCII (RFC 6749, appendix A.12)."""
    return _TOKEN.fullmatch(secret.reveal()) is not None


class _File(Received):
    """The members of a token file. Unknown ones are ignored."""

    model_config = ConfigDict(coerce_numbers_to_str=False)

    base_url: Text
    client_id: Text
    access_token: ReceivedSecret
    refresh_token: ReceivedSecret | None = None
    scope: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    authorized_at: LooseTime = None
    issued_at: LooseTime = None
    expires_at: LooseTime = None


def parse_token_set(text: str) -> TokenSet:
    """A token file's content.

    Raises:
        InvalidMessage: it is no token file; the text names the members at fault and never their content.
    """
    found = _File.receive(parse_json(text.encode()))
    for name in ("access_token", "refresh_token"):
        secret = getattr(found, name)
        if secret is not None and not is_token(secret):
            raise InvalidMessage(f"{name}: it is empty or holds something other than visible ASCII characters")
    if not _is_address(found.base_url):
        raise InvalidMessage("base_url: it must begin with http:// or https:// and name a host")
    return TokenSet(**{name: getattr(found, name) for name in _File.model_fields})


def token_set_text(tokens: TokenSet) -> str:
    """The content of a token file."""
    members = {
        "base_url": tokens.base_url,
        "issuer": tokens.issuer,
        "token_endpoint": tokens.token_endpoint,
        "client_id": tokens.client_id,
        "scope": tokens.scope,
        "access_token": tokens.access_token.reveal(),
        "refresh_token": tokens.refresh_token.reveal() if tokens.refresh_token else None,
        "authorized_at": _time(tokens.authorized_at),
        "issued_at": _time(tokens.issued_at),
        "expires_at": _time(tokens.expires_at),
    }
    return json.dumps({name: value for name, value in members.items() if value}, indent=2) + "\n"


def _is_address(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in {"http", "https"} and bool(url.host)


def _time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else to_rfc3339(epoch_s)
