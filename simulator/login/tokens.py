"""The token file of ``fleet-simulator login``: what it holds, how it is renewed, and a credential that reads it."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, StringConstraints
from pydantic_core import to_json

from agent.errors import Advice, InvalidMessage, ServiceError, UnexpectedAnswer
from agent.files import read_plain_file, replace_file
from agent.wire.client import Connection, read_record
from agent.wire.encoding import parse_json, to_rfc3339
from agent.wire.models import JsonObject, LooseTime, Received, ReceivedSecret, Text
from agent.wire.secret import Credential, Secret, never_show
from simulator.login.errors import SignInEnded, TokensNotStored
from simulator.wire import paths

MODE: Final = 0o600
MAX_TOKEN_FILE_BYTES: Final = 64 * 1024
_MARGIN_S: Final = 60.0
_TOKEN: Final = re.compile(r"[!-~]+")


def _check_token(token: Secret) -> Secret:
    if not _TOKEN.fullmatch(token.reveal()):
        raise ValueError("it is empty or holds something other than visible ASCII characters")
    never_show(token.reveal())
    return token


Token = Annotated[ReceivedSecret, AfterValidator(_check_token)]


class TokenAnswer(Received):
    """The token response (specification, "Token response (OAuth)").

    Attributes:
        expires_in: seconds of validity.
        user: who signed in; only after ``POST /auth/signin``.
    """

    access_token: Token
    token_type: str = "Bearer"  # noqa: S105 - a word of RFC 6750
    expires_in: int | None = None
    refresh_token: Token | None = None
    scope: str | None = None
    user: JsonObject | None = None


class TokenSet(Received):
    """What one sign-in gave, as it stands now. Times are seconds since the epoch.

    Attributes:
        base_url: the service that these tokens are for; they are sent nowhere else.
        client_id: the client that they were issued to.
        refresh_token: None when the service gave none; then nothing can be renewed.
        scope: what they may do, with spaces between.
        issued_at, expires_at: of the access token, by the clock of the machine that received it.
    """

    base_url: Annotated[Text, StringConstraints(pattern="^https?://[^/]")]
    client_id: Text
    access_token: Token
    refresh_token: Token | None = None
    scope: str = ""
    issued_at: LooseTime = None
    expires_at: LooseTime = None

    def renewed(self, answer: TokenAnswer, now_s: float) -> Self:
        """This set with the new pair of ``answer``, received at ``now_s``.

        A service that leaves the refresh token or the scope out has left it as it was (RFC 6749, sections 5.1 and 6).
        """
        changes = {
            "access_token": answer.access_token,
            "refresh_token": answer.refresh_token or self.refresh_token,
            "scope": answer.scope or self.scope,
            "issued_at": now_s,
            "expires_at": now_s + answer.expires_in if answer.expires_in and answer.expires_in > 0 else None,
        }
        return self.model_copy(update=changes)

    @property
    def renew_at(self) -> float:
        """When to renew: a minute before the end, or after three quarters of a short life."""
        if self.expires_at is None:
            return float("inf")
        life_s = self.expires_at - (self.issued_at or 0.0)
        return self.expires_at - min(_MARGIN_S, life_s / 4)


def read_tokens(path: Path) -> TokenSet:
    """What the file holds now.

    Raises:
        SignInEnded: there is no token set.
        TokensNotStored: it could not be read.
    """
    sign_in = f"sign in: fleet-simulator login --out {path}"
    try:
        return TokenSet.receive(parse_json(read_plain_file(path, MAX_TOKEN_FILE_BYTES)))
    except FileNotFoundError:
        raise SignInEnded(f"there is no token file {path}: {sign_in}") from None
    except OSError as error:
        raise TokensNotStored(f"the token file {path} cannot be read: {error.strerror}") from None
    except InvalidMessage as error:
        raise SignInEnded(f"{path} is no token file ({error}); {sign_in}") from None


def write_tokens(path: Path, tokens: TokenSet) -> None:
    """Replace what the file holds; on return it survives a power cut. A symbolic link stays one.

    Raises:
        TokensNotStored: what the file held is still there.
    """
    members: dict[str, Any] = tokens.model_dump(exclude_none=True)
    for name, value in members.items():
        if isinstance(value, Secret):
            members[name] = value.reveal()
        elif isinstance(value, float):
            members[name] = to_rfc3339(value)
    try:
        replace_file(Path(os.path.realpath(path)), json.dumps(members, indent=2) + "\n", MODE, durable=True)
    except OSError as error:
        fix = "make room there, or make the folder writable for this user"
        raise TokensNotStored(f"the tokens cannot be written to {path} ({error.strerror}): {fix}") from None


def ask_for_tokens(connection: Connection, form: dict[str, str | None]) -> TokenAnswer:
    """``POST {base_url}/functions/v1/partner-oauth-token``: tokens for a code or a refresh token.

    Args:
        connection: to the service.
        form: the members of the body; those that are None are left out. No text of an error shows them.

    Raises:
        ServiceError: there are none.
    """
    body = {name: value for name, value in form.items() if value is not None}
    for name in body.keys() & {"code", "code_verifier", "client_secret", "refresh_token"}:
        never_show(body[name])
    answer = connection.request("POST", paths.OAUTH_TOKEN, body=to_json(body))
    tokens = read_record(TokenAnswer, answer, "token")
    if tokens.token_type.lower() != "bearer":
        raise UnexpectedAnswer(f"{answer.source} gave tokens of a type that is not Bearer", answer.status)
    return tokens


def renew(connection: Connection, path: Path, client_secret: Secret | None) -> TokenSet:
    """The tokens of the file, renewed when their end is near. One process renews a file; any number read it.

    Raises:
        SignInEnded: a person has to sign in again.
        ServiceError: it could not be done now; nothing is lost.
    """
    tokens = read_tokens(path)
    if tokens.renew_at > time.time():
        return tokens
    again = f"sign in again: fleet-simulator login --out {path}"
    if tokens.refresh_token is None:
        raise SignInEnded(f"the access token has ended and there is no refresh token; {again}")
    write_tokens(path, tokens)  # a disk that takes nothing is found before the old pair is given up
    form = {
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh_token.reveal(),
        "client_id": tokens.client_id,
        "client_secret": client_secret.reveal() if client_secret else None,
    }
    try:
        renewed = tokens.renewed(ask_for_tokens(connection, form), time.time())
    except ServiceError as error:
        if error.advice is Advice.RETRY:
            raise
        fix = f"{again}, or check --client-secret-file"
        raise SignInEnded(f"the service does not renew the tokens ({error}); {fix}") from None
    write_tokens(path, renewed)
    return renewed


class FileToken(Credential):
    """The access token that a token file holds at each request; ``fleet-simulator login --keep`` renews it there.

    Raises:
        ServiceError: the file holds nothing that can be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.base_url = read_tokens(path).base_url

    def __repr__(self) -> str:
        return f"FileToken({self._path})"

    def headers(self) -> dict[str, str]:
        """The token that the file holds now."""
        tokens = read_tokens(self._path)
        if tokens.base_url != self.base_url:
            raise SignInEnded(f"{self._path} holds tokens for {tokens.base_url} by now, not for {self.base_url}")
        return {"Authorization": f"Bearer {tokens.access_token.reveal()}"}
