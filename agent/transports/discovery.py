"""What the service offers (``GET /.well-known/device-service``), and what was found out about it in use.

Also requests under an ``Idempotency-Key`` where the service takes one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.core.listed import listed_state
from agent.errors import ErrorAnswer, Refused, ServerFault, ServiceError, StorageError, UnexpectedAnswer
from agent.wire import extensions
from agent.wire.client import DeviceClient
from agent.wire.dialect import CommandLists, Dialect
from agent.wire.extensions import COMMAND_STATUS, IDEMPOTENCY_KEY, Announcement
from agent.wire.server_profile import SETTING, ServerProfile, describe, read_profile, sentence, shortened

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

REFRESH_S: Final = 3600.0
_SOON_S: Final = 60.0
# A server may fail on paths that it does not know: after this many answers that say nothing it counts as plain.
_TRIES: Final = 3


class Discovery:
    """The offered extensions, remembered for an hour, and the profile. Shared by source and uplink; thread-safe.

    What the configuration says (``service.dialect.extensions``) goes before what is announced: then the service is not
    asked. What the service offers and refuses counts as not offered. The profile is kept in the journal, logged when it
    changes, and begins anew with another address, version or set of extensions.

    Args:
        client: who to ask with.
        clock: when to ask again.
        dialect: what the configuration says of the service.
        journal: keeps the profile over restarts; written only when it changes. None keeps it in memory.
        address: the base URL as it is configured.

    Attributes:
        profile: what was found out; replaced as a whole.
    """

    def __init__(
        self,
        client: DeviceClient,
        clock: Clock,
        dialect: Dialect | None = None,
        journal: Journal | None = None,
        address: str | None = None,
    ) -> None:
        self._client = client
        self.clock = clock
        self.dialect = Dialect() if dialect is None else dialect
        self._journal = journal
        self._lock = threading.Lock()
        self._profile_lock = threading.Lock()
        self._offered: frozenset[str] | None = None
        self._ask_at_s: float | None = None
        self._failures = 0
        address = str(client.connection.base_url) if address is None else address
        self.profile = ServerProfile(address)
        self._kept: str | None = None
        self._words: tuple[str, ...] = ()
        self._load(address)

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension; asks the service when it was not asked within the hour.

        Raises:
            ServiceError: it could not be asked and never was before; later failures keep the last answer.
        """
        if self.profile.is_withdrawn(extension):
            return False
        if self.dialect.extensions is not None:
            return extension in self.dialect.extensions
        now_s = self.clock.now().monotonic_s
        with self._lock:
            if self._offered is None or self._ask_at_s is None or now_s >= self._ask_at_s:
                self._refresh(now_s)
            # Another version may have taken back what was withdrawn, or the other way round.
            return self._offered is not None and extension in self._offered and not self.profile.is_withdrawn(extension)

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`, without a request: False while the service was never asked."""
        if self.profile.is_withdrawn(extension):
            return False
        if self.dialect.extensions is not None:
            return extension in self.dialect.extensions
        with self._lock:
            return self._offered is not None and extension in self._offered

    def state_of(self, status: str | None, *, is_refused: bool = False) -> str | None:
        """The state of a listed command, as far as this service can be taken at its word; makes no request.

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

    def _announced(self, announcement: Announcement) -> None:
        """The server said this of itself. With another version or other extensions the profile is forgotten."""
        names = tuple(sorted(announcement.extensions))
        with self._profile_lock:
            found = self.profile
            is_other = found.announced is not None and found.announced != names
            if found.version and announcement.version and found.version != announcement.version:
                is_other = True
            if is_other:
                _log.info("server=changed what was found out about %s is forgotten", found.address)
                found = ServerProfile(found.address)
            self._take(replace(found, announced=names, version=announcement.version or found.version))

    def note(self, **changes: Any) -> None:
        """Fields of :class:`~agent.wire.server_profile.ServerProfile` that were found out; texts are shortened."""
        short: dict[str, Any] = {
            name: shortened(value) if type(value) is str else value for name, value in changes.items()
        }
        with self._profile_lock:
            self._take(replace(self.profile, **short))

    def withdraw(self, feature: str, reason: str) -> None:
        """The service refused this and took the same request without it: not used until the service changes."""
        with self._profile_lock:
            if self.profile.is_withdrawn(feature):
                return
            _log.warning("server=refuses %s, so it is not used until the server changes: %s", feature, reason)
            withdrawn = tuple(sorted({**dict(self.profile.withdrawn), feature: shortened(reason)}.items()))
            self._take(replace(self.profile, withdrawn=withdrawn))

    def _load(self, address: str) -> None:
        if self._journal is None:
            return
        try:
            self._kept = self._journal.setting(SETTING)
        except StorageError as error:
            _log.warning("server=unknown what was found out about it cannot be read: %s", error)
        found = read_profile(self._kept)
        if found is not None and found.address == address:
            self.profile = found
            self._words = describe(found, self.dialect)

    def _take(self, found: ServerProfile) -> None:
        self.profile = found
        text = found.to_json()
        if text == self._kept:
            return
        words = describe(found, self.dialect)
        if words != self._words:
            self._words = words
            _log.info("server=found %s", sentence(words))
        if self._journal is None:
            self._kept = text
            return
        try:
            self._journal.put_setting(SETTING, text)
        except StorageError as error:
            # The next change writes it.
            _log.warning("server=found what was found out is not kept over a restart: %s", error)
        else:
            self._kept = text

    def _refresh(self, now_s: float) -> None:
        try:
            announcement = self._client.discover()
        except ServiceError as error:
            self._failures += 1
            self._offered = self._without_an_answer(error)
            self._ask_at_s = now_s + _SOON_S
            return
        self._failures = 0
        self._offered = announcement.extensions
        self._ask_at_s = now_s + REFRESH_S
        self._announced(announcement)

    def _without_an_answer(self, error: ServiceError) -> frozenset[str]:
        if self._offered is not None:
            return self._offered
        announced = self.profile.announced
        if announced is not None:
            return frozenset(announced)
        if isinstance(error, ServerFault | UnexpectedAnswer) and self._failures >= _TRIES:
            return extensions.NONE
        raise error


AnswerT = TypeVar("AnswerT")

# What a server answers that cannot take a header: bad request, precondition failed, header too large, not implemented.
_REFUSALS: Final = frozenset({400, 412, 431, 501})


class KeyedSender:
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
