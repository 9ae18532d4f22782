"""What the service offers (``GET /.well-known/device-service``), and what was found out about it in use."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Final

from agent.core.commands import listed_state
from agent.errors import ServerFault, ServiceError, StorageError, UnexpectedAnswer
from agent.ports import Clock
from agent.store.journal import Journal
from agent.wire.client import DeviceClient
from agent.wire.dialect import CommandLists, Dialect
from agent.wire.extensions import COMMAND_STATUS, IDEMPOTENCY_KEY, Announcement
from agent.wire.server_profile import SETTING, ServerProfile, describe, read_profile

_log = logging.getLogger(__name__)

REFRESH_S: Final = 3600.0
_SOON_S: Final = 60.0
# A server may fail on paths that it does not know: after this many answers that say nothing it counts as plain.
_TRIES: Final = 3
_TEXT_MAX: Final = 200


class Discovery:
    """The offered extensions, asked for once an hour, and the profile. Shared by source and uplink; thread-safe.

    What the configuration says (``service.dialect.extensions``) goes before what is announced: then the service is not
    asked. The profile is kept in the journal, logged when it changes, and begins anew with another address, version or
    set of extensions.

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
        self._clock = clock
        self.dialect = Dialect() if dialect is None else dialect
        self._journal = journal
        self._lock = threading.RLock()
        self._ask_at_s: float | None = None
        self._failures = 0
        self._kept: str | None = None
        self.profile = ServerProfile(str(client.base_url) if address is None else address)
        self._load()
        self._words = describe(replace(self.profile, notes=()), self.dialect)

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension; asks the service when it was not asked within the hour.

        Raises:
            ServiceError: it could not be asked and never was before; later failures keep the last answer.
        """
        if self.dialect.extensions is None:
            now_s = self._clock.now().monotonic_s
            with self._lock:
                if self.profile.announced is None or self._ask_at_s is None or now_s >= self._ask_at_s:
                    self._ask(now_s)
        return self.knows(extension)

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`, without a request: False while the service was never asked."""
        configured = self.dialect.extensions
        return extension in ((self.profile.announced or ()) if configured is None else configured)

    def key(self, key: str) -> str | None:
        """The ``Idempotency-Key`` to send; None where the service takes none. Raises as :meth:`offers`."""
        return key if self.offers(IDEMPOTENCY_KEY) else None

    def state_of(self, status: str | None) -> str | None:
        """The state of a listed command, as far as this service can be taken at its word; makes no request."""
        only_open = self.dialect.command_lists is CommandLists.OPEN
        return listed_state(status, has_states=self.knows(COMMAND_STATUS), only_open=only_open)

    def forget(self) -> None:
        """The service did not do what it offered: ask again before the next use."""
        with self._lock:
            self._ask_at_s = None

    def set_no_place(self, reason: str) -> None:
        """Results find no place, and why; an empty text says that they do."""
        line = " ".join(reason.split())
        with self._lock:
            if line[:_TEXT_MAX] != self.profile.no_place:
                self._keep(replace(self.profile, no_place=line[:_TEXT_MAX]))

    def note(self, kind: str, sentence: str) -> None:
        """Something odd about the server's lists, said once for each kind."""
        with self._lock:
            notes = dict(self.profile.notes)
            if kind not in notes:
                _log.warning("commands=odd %s", sentence)
                self._keep(replace(self.profile, notes=tuple(sorted({**notes, kind: sentence}.items()))))

    def _ask(self, now_s: float) -> None:
        try:
            announcement = self._client.discover()
        except ServiceError as error:
            self._failures += 1
            self._ask_at_s = now_s + _SOON_S
            if self.profile.announced is None:
                if not isinstance(error, ServerFault | UnexpectedAnswer) or self._failures < _TRIES:
                    raise
                self._announced(Announcement())
            return
        self._failures = 0
        self._ask_at_s = now_s + REFRESH_S
        self._announced(announcement)

    def _announced(self, announcement: Announcement) -> None:
        """The server said this of itself. With another version or other extensions the profile is forgotten."""
        names, found = tuple(sorted(announcement.extensions)), self.profile
        is_newer = bool(found.version and announcement.version and found.version != announcement.version)
        if is_newer or (found.announced is not None and found.announced != names):
            _log.info("server=changed what was found out about %s is forgotten", found.address)
            found = ServerProfile(found.address)
        self._keep(replace(found, announced=names, version=announcement.version or found.version))

    def _load(self) -> None:
        if self._journal is None:
            return
        try:
            self._kept = self._journal.setting(SETTING)
        except StorageError as error:
            _log.warning("server=unknown what was found out about it cannot be read: %s", error)
        found = read_profile(self._kept)
        if found is not None and found.address == self.profile.address:
            self.profile = found

    def _keep(self, found: ServerProfile) -> None:
        self.profile = found
        text = found.to_json()
        if text == self._kept:
            return
        words = describe(replace(found, notes=()), self.dialect)
        if words != self._words:
            self._words = words
            _log.info("server=found this server: %s", ", ".join(words))
        try:
            if self._journal is not None:
                self._journal.put_setting(SETTING, text)
            self._kept = text
        except StorageError as error:  # the next change writes it
            _log.warning("server=found what was found out is not kept over a restart: %s", error)
