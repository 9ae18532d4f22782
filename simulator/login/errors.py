"""What may go wrong with a sign-in and its tokens."""

from __future__ import annotations

from agent.errors import Advice, AgentError, ServiceError, Unauthorized


class SignInFailed(AgentError):
    """No tokens came of it; the text says why and what to do."""


class TokensNotStored(ServiceError):
    """The token file could not be locked, read or written."""

    advice = Advice.RETRY


class SignInEnded(Unauthorized):
    """The tokens are over and cannot be renewed; the text says how to sign in again."""

    def __init__(self, message: str, error: str = "invalid_grant") -> None:
        super().__init__(401, error, message)
