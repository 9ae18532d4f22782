"""The tokens of one sign-in: renewed once for everybody, on the disk before they are used (specification, "Refresh").

The service rotates both tokens and takes a refresh token that comes a second time for a theft, which ends the whole
sign-in. So renewing takes a lock that threads and processes share, looks first whether another one has renewed
meanwhile, and stores the new pair before the first request goes out with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from agent.errors import Advice, ErrorAnswer, InvalidMessage, ServiceError, Unauthorized
from agent.wire.secret import Secret
from simulator.login.errors import SignInEnded
from simulator.login.tokens import TokenAnswer, TokenSet, life_of

MARGIN_S: Final = 60.0
"""Tokens are renewed this long before they end, or after three quarters of a short life."""
_RETRY_AHEAD_S: Final = 10.0
_UNPROVEN_S: Final = 60.0
_INVALID_GRANT: Final = "invalid_grant"


class TokenStore(Protocol):
    """Where a token set is kept. :class:`simulator.login.token_store.TokenFile` is one."""

    @property
    def name(self) -> str:
        """What to call it in a sentence, and to give to ``fleet-simulator login --out``."""

    def version(self) -> object:
        """Differs from what it was when the content may have changed; quick."""

    def read(self) -> TokenSet:
        """What is kept now.

        Raises:
            SignInEnded: there is no token set.
            TokensNotStored: it could not be read.
        """

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep every other process out meanwhile.

        Raises:
            TokensNotStored: it could not be locked.
        """

    def reserve(self) -> None:
        """See that :meth:`write` will work, as far as one can know before. Called within :meth:`exclusive`.

        Raises:
            TokensNotStored: it will not.
        """

    def write(self, tokens: TokenSet) -> None:
        """Replace what is kept; on return it survives a power cut. Called within :meth:`exclusive`.

        Raises:
            TokensNotStored: what was kept is still kept.
        """


class TokenKeeper:
    """The tokens of one sign-in, shared by all connections of this process. Thread-safe.

    Neither clock is trusted with more than a guess: a token that the service refuses is over, whatever the clocks say.

    Args:
        store: where they are kept, and where other processes and a new sign-in put theirs.
        refresh: asks the service for a new pair for a refresh token of this set.
        monotonic: measures the life of tokens that this process received.
        wall: what ``expires_at`` in the store is compared with.

    Raises:
        ServiceError: the store holds nothing that can be used.
    """

    def __init__(
        self,
        store: TokenStore,
        refresh: Callable[[TokenSet, Secret], TokenAnswer],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._refresh = refresh
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._version = store.version()
        self._tokens = store.read()
        self._due = self._due_of(self._tokens)
        self._retry_at = float("-inf")
        self._unproven_until = float("-inf")
        self._unwritten: TokenSet | None = None
        self._over: SignInEnded | None = None

    @property
    def held(self) -> TokenSet:
        """The token set in use now."""
        return self._tokens

    @property
    def unwritten(self) -> TokenSet | None:
        """A token set that the service issued and that is not on the disk yet; never sent."""
        return self._unwritten

    def current(self) -> TokenSet:
        """What to send with a request, renewed when its end is near.

        Raises:
            SignInEnded: a person has to sign in again; no request is made until the store changes.
            ServiceError: a renewed pair waits to be written and still cannot be.
        """
        with self._lock:
            self._look()
            self._check_over()
            if self._unwritten is not None:
                self._renew()
            elif self._due <= self._monotonic() and self._retry_at <= self._monotonic():
                try:
                    self._renew()
                except ServiceError as error:
                    if error.advice is not Advice.RETRY or self._unwritten is not None:
                        raise
                    self._retry_at = self._monotonic() + _RETRY_AHEAD_S  # what is held may do for a while
            return self._tokens

    def refused(self, used: TokenSet) -> TokenSet | None:
        """The service does not take ``used`` any more: what to send instead; None when there is nothing better.

        Raises:
            SignInEnded: a person has to sign in again.
            ServiceError: it could not be renewed now; nothing is lost.
        """
        with self._lock:
            self._look()
            self._check_over()
            if self._tokens.access_token == used.access_token:
                if self._monotonic() < self._unproven_until:
                    return None  # it is new and was never good: another one would not be better
                self._renew()
            return self._tokens

    def accepted(self, used: TokenSet) -> None:
        """The service took these tokens."""
        if self._unproven_until > 0 and used is self._tokens:
            self._unproven_until = float("-inf")

    def _look(self) -> None:
        """Take what another process has stored; a file that cannot be read raises when its content is needed."""
        version = self._store.version()
        if version == self._version:
            return
        try:
            tokens = self._store.read()
        except ServiceError:
            return
        self._version = version
        self._adopt(tokens)

    def _adopt(self, tokens: TokenSet) -> None:
        if tokens.access_token == self._tokens.access_token and tokens.refresh_token == self._tokens.refresh_token:
            return
        self._tokens = tokens
        self._due = self._due_of(tokens)
        self._over = None
        self._unwritten = None
        self._unproven_until = float("-inf")

    def _renew(self) -> None:
        with self._store.exclusive():
            version = self._store.version()
            stored = self._store.read()
            if stored.access_token != self._tokens.access_token:
                self._version = version
                self._adopt(stored)
                return
            self._store.reserve()
            if self._unwritten is None:
                received_at = self._monotonic()
                answer = self._ask(stored)
                # From here on the old pair is over at the service, and this is the only copy of the new one.
                self._unwritten = stored.renewed(answer, self._wall())
                self._due = _due(received_at, life_of(answer))
            self._store.write(self._unwritten)
            self._tokens, self._unwritten = self._unwritten, None
            self._version = self._store.version()
            self._unproven_until = self._monotonic() + _UNPROVEN_S

    def _ask(self, tokens: TokenSet) -> TokenAnswer:
        advice = f"sign in again: fleet-simulator login --out {self._store.name}"
        if tokens.refresh_token is None:
            self._over = SignInEnded(f"the access token has ended and there is no refresh token; {advice}")
            raise self._over
        try:
            return self._refresh(tokens, tokens.refresh_token)
        except (ServiceError, InvalidMessage) as error:
            if error.advice is Advice.RETRY:
                raise
            word = error.error if isinstance(error, ErrorAnswer) else ""
            reason = str(error)
        if word == _INVALID_GRANT:
            self._over = SignInEnded(f"the service has ended this sign-in ({reason}); {advice}")
            raise self._over
        # The client or the address, not the person (RFC 6749, section 5.2). Nothing is dropped on account of it.
        raise Unauthorized(
            401,
            word,
            f"the service does not renew the tokens of client {tokens.client_id} ({reason}): check client_id and "
            f"base_url in {self._store.name}, and the file with the client secret",
        )

    def _check_over(self) -> None:
        if self._over is not None:
            raise SignInEnded(self._over.message, self._over.error)

    def _due_of(self, tokens: TokenSet) -> float:
        """When to renew what was read, on the monotonic clock. A wrong wall clock makes it early or late, no more."""
        if tokens.expires_at is None or tokens.refresh_token is None:
            return float("inf")
        life_s = None if tokens.issued_at is None else tokens.expires_at - tokens.issued_at
        return _due(self._monotonic(), tokens.expires_at - self._wall(), life_s)


def _due(now: float, left_s: float | None, life_s: float | None = None) -> float:
    if left_s is None:
        return float("inf")
    return now + left_s - min(MARGIN_S, (left_s if life_s is None else life_s) / 4)
