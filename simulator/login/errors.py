"""What may go wrong with tokens that are renewed."""

from __future__ import annotations

from agent.errors import Advice, ServiceError, Unauthorized


class TokensNotStored(ServiceError):
    """The token file could not be locked or written. Nothing was sent with tokens that are not on the disk."""

    advice = Advice.RETRY


class SignInEnded(Unauthorized):
    """The tokens are over and cannot be renewed; the text says how to sign in again."""

    def __init__(self, message: str, error: str = "invalid_grant") -> None:
        super().__init__(401, error, message)
