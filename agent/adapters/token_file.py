"""A bearer token that another program renews in its file (configuration ``auth.token_file``)."""

from __future__ import annotations

from agent.adapters.renewed_token import RenewedToken
from agent.wire.auth import Credential
from agent.wire.secret import Secret


class PlainTokenFile(Credential):
    """``Authorization: Bearer`` with what the file holds now (specification, "Step 3: call the API")."""

    def __init__(self, token: RenewedToken) -> None:
        super().__init__()
        self._token = token

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.current().reveal()}"}

    def _secrets(self) -> tuple[Secret, ...]:
        return (self._token.last,)
