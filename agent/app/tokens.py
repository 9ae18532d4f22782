"""How the bearer token stands, for ``device-agent check`` and ``device-agent status``: reads files only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.app.client import OWN_TOKENS, token_store
from agent.config import AgentConfig, Credentials, read_credentials
from agent.errors import ConfigurationError, ErrorAnswer, ServiceError
from agent.token_store import TokenFile
from agent.wire.tokens import TokenSet

_MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class TokenState:
    """A sentence for a person, empty with a key pair, and whether there is a token to begin with."""

    text: str
    is_usable: bool = True


def read_token_state(config: AgentConfig, environ: Mapping[str, str], now_s: float) -> TokenState:
    """What the agent would begin with now; ``now_s`` is this machine's clock, seconds since the epoch."""
    if config.auth.mode != "bearer":
        return TokenState("")
    credentials: Credentials | None
    try:
        credentials = read_credentials(config.auth, environ)
    except ConfigurationError:  # under systemd only the service itself sees its credentials
        credentials = None
    if credentials is not None and credentials.tokens is None:
        return TokenState("a token alone, which another program has to renew")
    own = TokenFile(config.state_dir / OWN_TOKENS)
    path = credentials.token_path if credentials else None
    try:
        tokens = own.read() if path is None else token_store(config, path).read()
    except ErrorAnswer as error:
        return TokenState(error.message, is_usable=False)
    except ServiceError as error:
        return TokenState(str(error), is_usable=False)
    return TokenState(_sentence(tokens, now_s))


def _sentence(tokens: TokenSet, now_s: float) -> str:
    whose = f"client {tokens.client_id}, scope {tokens.scope or 'not told'}"
    if tokens.refresh_token is None:
        return f"{whose}; they cannot be renewed: there is no refresh token"
    if tokens.expires_at is None:
        return f"{whose}; renewed when the service asks for it"
    left_min = (tokens.expires_at - now_s) / _MINUTE_S
    ends = f"ends in {left_min:.0f} min" if left_min > 0 else "has ended"
    return f"{whose}; the access token {ends} and is renewed by the agent"
