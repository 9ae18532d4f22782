"""The token file of ``fleet-simulator login``, and the credential that renews what is in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Self

import httpx
from pydantic import AfterValidator, ConfigDict
from pydantic_core import to_json

from agent.errors import Advice, ErrorAnswer, InvalidMessage, ServiceError, Unauthorized, UnexpectedAnswer
from agent.files import read_plain_file, replace_file
from agent.wire import paths
from agent.wire.auth import Credential, origin_of
from agent.wire.base import JsonObject, LooseTime, Received, ReceivedSecret, Text
from agent.wire.connection import Connection
from agent.wire.device_client import read_record
from agent.wire.json_text import parse_json
from agent.wire.secret import MAX_TOKEN_FILE_BYTES, Secret, never_show
from agent.wire.times import to_rfc3339
from simulator.file_lock import lock_file
from simulator.login.errors import SignInEnded, TokensNotStored

MODE: Final = 0o600
_MARGIN_S: Final = 60.0
_TOKEN: Final = re.compile(r"[!-~]+")
_UNAUTHORIZED: Final = 401


def _check_token(token: Secret) -> Secret:
    if not _TOKEN.fullmatch(token.reveal()):
        raise ValueError("it is empty or holds something other than visible ASCII characters")
    never_show(token.reveal())
    return token


def _check_address(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("it must begin with http:// or https:// and name a host")
    return text


Token = Annotated[ReceivedSecret, AfterValidator(_check_token)]


class TokenAnswer(Received):
    """The token response (specification, "Token response (OAuth)").

    Attributes:
        expires_in: seconds of validity.
        user: who signed in; only after ``POST /auth/signin``.
    """

    model_config = ConfigDict(coerce_numbers_to_str=False)

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

    model_config = ConfigDict(coerce_numbers_to_str=False)

    base_url: Annotated[Text, AfterValidator(_check_address)]
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

    def to_text(self) -> str:
        """The content of a token file."""
        members: dict[str, Any] = self.model_dump(exclude_none=True)
        for name, value in members.items():
            if isinstance(value, Secret):
                members[name] = value.reveal()
            elif isinstance(value, float):
                members[name] = to_rfc3339(value)
        return json.dumps(members, indent=2) + "\n"


class TokenFile:
    """A token file: ``fleet-simulator login`` writes it, and who renews the tokens writes it again.

    Args:
        path: the file; a symbolic link stays one. Its folder must be writable for whoever renews.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = Path(os.path.realpath(path))

    def exists(self) -> bool:
        """Whether there is a file by now."""
        return self._path.exists()

    def read(self) -> TokenSet:
        """What is kept now.

        Raises:
            SignInEnded: there is no token set.
            TokensNotStored: it could not be read.
        """
        sign_in = f"sign in: fleet-simulator login --out {self.name}"
        try:
            return TokenSet.receive(parse_json(read_plain_file(self._path, MAX_TOKEN_FILE_BYTES)))
        except FileNotFoundError:
            raise SignInEnded(f"there is no token file {self.name}: {sign_in}") from None
        except OSError as error:
            raise TokensNotStored(f"the token file {self.name} cannot be read: {error.strerror}") from None
        except InvalidMessage as error:
            raise SignInEnded(f"{self.name} is no token file ({error}); {sign_in}") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other threads and processes out meanwhile, by a file beside it.

        Raises:
            TokensNotStored: it could not be locked.
        """
        lock = self._path.with_name(f"{self._path.name}.lock")
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        except OSError as error:
            raise TokensNotStored(f"{lock} cannot be locked: {error.strerror}") from None
        try:
            lock_file(fd, wait=True)
            yield
        finally:
            os.close(fd)

    def write(self, tokens: TokenSet) -> None:
        """Replace what is kept; on return it survives a power cut.

        Raises:
            TokensNotStored: what was kept is still kept.
        """
        try:
            replace_file(self._path, tokens.to_text(), MODE, durable=True)
        except OSError as error:
            text = f"the tokens cannot be written to {self.name} ({error.strerror})"
            raise TokensNotStored(f"{text}: make room there, or make the folder writable for this user") from None


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


class RefreshingBearer(Credential):
    """The tokens of a file as a credential. Thread-safe; hand one of these to all connections of a process::

        bearer = RefreshingBearer(TokenFile(Path("token.json")))
        with ServiceClient(bearer.base_url, bearer) as service:
            ...

    A request that is refused with 401 is repeated once with a new token, and never again.

    Args:
        file: where the tokens are kept.
        client_secret: of a confidential client.
        timeout_s: for renewing.
        ca_file: PEM file with the authorities that alone are trusted when tokens are renewed; None trusts the system's.

    Raises:
        ServiceError: the file holds nothing that can be used.
    """

    def __init__(
        self,
        file: TokenFile,
        *,
        client_secret: Secret | None = None,
        timeout_s: float = 10.0,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__()
        self._file = file
        self._client_secret = client_secret
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        file.read()

    def __repr__(self) -> str:
        return f"RefreshingBearer({self._file.name})"

    @property
    def base_url(self) -> str:
        """The service that the tokens are for."""
        return self._file.read().base_url

    def current(self) -> TokenSet:
        """The tokens, renewed when their end is near.

        Raises:
            ServiceError: they could not be renewed.
        """
        tokens = self._file.read()
        return self.renew(tokens) if tokens.renew_at <= time.time() else tokens

    def renew(self, used: TokenSet) -> TokenSet:
        """Tokens in place of ``used``: those that another one has stored meanwhile, or new ones.

        Raises:
            SignInEnded: a person has to sign in again.
            ServiceError: it could not be done now; nothing is lost.
        """
        with self._file.locked():
            stored = self._file.read()
            if stored.access_token != used.access_token:
                return stored
            self._file.write(stored)  # a disk that takes nothing is found before the old pair is given up
            renewed = stored.renewed(self._ask(stored), time.time())
            self._file.write(renewed)
        return renewed

    def _ask(self, tokens: TokenSet) -> TokenAnswer:
        advice = f"sign in again: fleet-simulator login --out {self._file.name}"
        if tokens.refresh_token is None:
            raise SignInEnded(f"the access token has ended and there is no refresh token; {advice}")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": tokens.refresh_token.reveal(),
            "client_id": tokens.client_id,
            "client_secret": self._client_secret.reveal() if self._client_secret else None,
        }
        # Not over the connection that waits for it: interrupting a held poll would cut off the only copy of the pair.
        connection = Connection(
            tokens.base_url, timeout_s=self._timeout_s, max_answer_bytes=MAX_TOKEN_FILE_BYTES, ca_file=self._ca_file
        )
        try:
            with connection:
                return ask_for_tokens(connection, form)
        except (ServiceError, InvalidMessage) as error:
            if error.advice is Advice.RETRY:
                raise
            word, reason = error.error if isinstance(error, ErrorAnswer) else "", str(error)
        if word == "invalid_grant":
            raise SignInEnded(f"the service has ended this sign-in ({reason}); {advice}")
        # The client or the address, not the person (RFC 6749, section 5.2).
        raise Unauthorized(
            _UNAUTHORIZED,
            word,
            f"the service does not renew the tokens of client {tokens.client_id} ({reason}): check client_id and "
            f"base_url in {self._file.name}, and the file with the client secret",
        )

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token; when the service refuses it, once more with a new one.

        Raises:
            SignInEnded: a person has to sign in again, or the tokens are for another service.
            ServiceError: they could not be renewed now.
        """
        if self.origin is None or origin_of(request.url) != self.origin:
            yield request
            return
        try:
            tokens = self.current()
        except ServiceError as error:
            if error.advice is not Advice.RETRY:
                raise
            tokens = self._file.read()  # it may do for a while
        self._put(tokens, request)
        response = yield request
        if response.status_code != _UNAUTHORIZED:
            return
        tokens = self.renew(tokens)
        if not response.is_closed and isinstance(response.stream, httpx.SyncByteStream):
            # httpx would read it whole before the repeat, however large it is.
            response.stream.close()
            response.stream = httpx.ByteStream(b"")
        self._put(tokens, request)
        yield request

    def _put(self, tokens: TokenSet, request: httpx.Request) -> None:
        if origin_of(httpx.URL(tokens.base_url)) != self.origin:
            raise SignInEnded(
                f"{self._file.name} holds tokens for {tokens.base_url}, and this service is {self.origin}: sign in "
                f"here, with fleet-simulator login --base-url ADDRESS --out {self._file.name}"
            )
        request.headers["Authorization"] = f"Bearer {tokens.access_token.reveal()}"

    def _headers(self) -> dict[str, str]:
        return {}  # `auth_flow` adds them

    def _secrets(self) -> tuple[Secret, ...]:
        return (self._client_secret,) if self._client_secret else ()  # tokens are kept out of all texts as it is
