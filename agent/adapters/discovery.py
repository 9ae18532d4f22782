"""Which extensions the service offers, asked once in a while (``GET /.well-known/device-service``).

Also requests under an ``Idempotency-Key`` where it takes one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from agent.adapters.server_book import ServerBook
from agent.core.listed_states import listed_state
from agent.errors import ErrorAnswer, Refused, ServerFault, ServiceError, UnexpectedAnswer
from agent.wire import extensions
from agent.wire.announcement import ask_for_announcement
from agent.wire.device_client import DeviceClient
from agent.wire.dialect import CommandLists, Dialect
from agent.wire.extensions import COMMAND_STATUS, IDEMPOTENCY_KEY

if TYPE_CHECKING:
    from agent.ports import Clock


REFRESH_S: Final = 3600.0
_SOON_S: Final = 60.0
# A server may fail on paths that it does not know: after this many answers that say nothing it counts as plain.
_TRIES: Final = 3


class Discovery:
    """The offered extensions, remembered for an hour. Shared by source and uplink; thread-safe.

    What the configuration says (``service.dialect.extensions``) goes before it: then the service is not asked. What
    the service offers and refuses counts as not offered.

    Args:
        client: who to ask with.
        clock: when to ask again.
        book: what was found out about the server; None begins with nothing and keeps nothing.
    """

    def __init__(self, client: DeviceClient, clock: Clock, book: ServerBook | None = None) -> None:
        self._client = client
        self._clock = clock
        self.book = ServerBook(str(client.connection.base_url)) if book is None else book
        self._lock = threading.Lock()
        self._offered: frozenset[str] | None = None
        self._ask_at_s: float | None = None
        self._failures = 0

    @property
    def dialect(self) -> Dialect:
        """What the configuration says of the service."""
        return self.book.dialect

    def now_s(self) -> float:
        """The monotonic clock, seconds."""
        return self._clock.now().monotonic_s

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension; asks the service when it was not asked within the hour.

        Raises:
            ServiceError: it could not be asked and never was before; later failures keep the last answer.
        """
        if self.book.is_withdrawn(extension):
            return False
        if self.dialect.extensions is not None:
            return extension in self.dialect.extensions
        now_s = self.now_s()
        with self._lock:
            if self._offered is None or self._ask_at_s is None or now_s >= self._ask_at_s:
                self._refresh(now_s)
            # Another version may have taken back what was withdrawn, or the other way round.
            return self._offered is not None and extension in self._offered and not self.book.is_withdrawn(extension)

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`, but asks nobody: False while the service was never asked."""
        if self.book.is_withdrawn(extension):
            return False
        if self.dialect.extensions is not None:
            return extension in self.dialect.extensions
        with self._lock:
            return self._offered is not None and extension in self._offered

    def state_of(self, status: str | None, *, is_refused: bool = False) -> str | None:
        """The state of a listed command, as far as this service can be taken at its word; asks nobody.

        Args:
            status: as it is listed.
            is_refused: the service has just refused to be asked by state.
        """
        has_states = not is_refused and self.knows(COMMAND_STATUS)
        return listed_state(status, has_states=has_states, only_open=self.dialect.command_lists is CommandLists.OPEN)

    def forget(self) -> None:
        """The service did not do what it offered: ask again before the next use."""
        with self._lock:
            self._ask_at_s = None

    def withdraw(self, feature: str, reason: str) -> None:
        """The service refused this and took the same request without it: not used until the service changes."""
        self.book.withdraw(feature, reason)

    def _refresh(self, now_s: float) -> None:
        try:
            announcement = ask_for_announcement(self._client.connection)
        except ServiceError as error:
            self._failures += 1
            self._offered = self._without_an_answer(error)
            self._ask_at_s = now_s + _SOON_S
            return
        self._failures = 0
        self._offered = announcement.extensions
        self._ask_at_s = now_s + REFRESH_S
        self.book.announced(announcement)

    def _without_an_answer(self, error: ServiceError) -> frozenset[str]:
        if self._offered is not None:
            return self._offered
        announced = self.book.findings.announced
        if announced is not None:
            return frozenset(announced)
        if isinstance(error, ServerFault | UnexpectedAnswer) and self._failures >= _TRIES:
            return extensions.NONE
        raise error


AnswerT = TypeVar("AnswerT")

# What a server answers that cannot take a header: bad request, precondition failed, header too large, not implemented.
_REFUSALS: Final = frozenset({400, 412, 431, 501})


class Keyed:
    """Sends under a key; once without it to a service that refuses the first one, and then never with one again.

    Args:
        discovery: what the service offers.
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._is_accepted = False

    def send(self, key: str, send: Callable[[str | None], AnswerT]) -> AnswerT:
        """The answer of ``send``, which is called with the key, or with None where the service takes none.

        Raises:
            ServiceError: what ``send`` raised; of a refusal with and without the key, the first.
        """
        if not self._discovery.offers(IDEMPOTENCY_KEY):
            return send(None)
        try:
            answer = send(key)
        except (Refused, ServerFault) as error:
            if self._is_accepted or error.status not in _REFUSALS:
                raise
            refusal: ErrorAnswer = error
        else:
            self._is_accepted = True
            return answer
        try:
            answer = send(None)
        except (Refused, ServerFault):
            raise refusal from None
        self._discovery.withdraw(IDEMPOTENCY_KEY, str(refusal))
        return answer
