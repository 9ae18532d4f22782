"""What was found out about the server: kept in the journal, logged when it changes, forgotten with another server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.errors import StorageError
from agent.wire.announcement import Announcement
from agent.wire.dialect import Dialect
from agent.wire.server_findings import SETTING, ServerFindings, describe, read_findings, sentence, shortened

if TYPE_CHECKING:
    from agent.ports import Journal

_log = logging.getLogger(__name__)


class ServerBook:
    """The findings about one server. Shared by source and uplink; thread-safe.

    Args:
        address: the server's base URL; what was found at another one is forgotten.
        dialect: what the configuration says.
        journal: keeps the findings over restarts; written only when they change. None keeps them in memory.
        on_changed: what was found out was forgotten, since it is another server now. Called from any thread.
    """

    def __init__(
        self,
        address: str,
        dialect: Dialect | None = None,
        journal: Journal | None = None,
        on_changed: Callable[[], object] = lambda: None,
    ) -> None:
        self.dialect = Dialect() if dialect is None else dialect
        self._journal = journal
        self._lock = threading.Lock()
        self._findings = ServerFindings(address)
        self._kept: str | None = None
        self._words: tuple[str, ...] = ()
        self._on_changed = on_changed
        self._was_elsewhere = False
        self._load(address)

    @property
    def findings(self) -> ServerFindings:
        """As they are now."""
        return self._findings

    def is_withdrawn(self, feature: str) -> bool:
        """The server refused this feature; it is not used until the server changes."""
        return self._findings.is_withdrawn(feature)

    def announced(self, announcement: Announcement) -> None:
        """The server said this of itself. With another version or other extensions all findings are forgotten."""
        names = tuple(sorted(announcement.extensions))
        with self._lock:
            found = self._findings
            is_other = found.announced is not None and found.announced != names
            if found.version and announcement.version and found.version != announcement.version:
                is_other = True
            if is_other:
                _log.info("server=changed what was found out about %s is forgotten", found.address)
                found = ServerFindings(found.address)
            self._take(replace(found, announced=names, version=announcement.version or found.version))
            is_other, self._was_elsewhere = is_other or self._was_elsewhere, False
        if is_other:
            self._on_changed()

    def note(self, **changes: Any) -> None:
        """Fields of :class:`~agent.wire.server_findings.ServerFindings` that were found out; texts are shortened."""
        short: dict[str, Any] = {
            name: shortened(value) if type(value) is str else value for name, value in changes.items()
        }
        with self._lock:
            self._take(replace(self._findings, **short))

    def withdraw(self, feature: str, reason: str) -> None:
        """Do not use this feature until the server changes: it refused it, and took the same request without it."""
        with self._lock:
            if self._findings.is_withdrawn(feature):
                return
            _log.warning("server=refuses %s, so it is not used until the server changes: %s", feature, reason)
            withdrawn = tuple(sorted({**dict(self._findings.withdrawn), feature: shortened(reason)}.items()))
            self._take(replace(self._findings, withdrawn=withdrawn))

    def _load(self, address: str) -> None:
        if self._journal is None:
            return
        try:
            self._kept = self._journal.setting(SETTING)
        except StorageError as error:
            _log.warning("server=unknown what was found out about it cannot be read: %s", error)
        found = read_findings(self._kept)
        if found is not None and found.address == address:
            self._findings = found
            self._words = describe(found, self.dialect)
        self._was_elsewhere = found is not None and found.address != address

    def _take(self, found: ServerFindings) -> None:
        self._findings = found
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
