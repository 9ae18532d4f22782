"""What the service offers: asked for by one worker, read by all others without waiting.

A thread that holds a grant must never wait for a thread that waits for one: so the service is never asked on the way.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Final

from agent.adapters.discovery import REFRESH_S, Discovery, ServerBook
from agent.errors import ServerFault, TransportError, UnexpectedAnswer
from agent.ports import Clock
from agent.wire.announcement import Announcement, ask_for_announcement
from agent.wire.device_client import DeviceClient
from agent.wire.dialect import CommandLists, Dialect
from agent.wire.extensions import COMMAND_STATUS, RECORDED_AT
from gateway.core.budget import Kind
from gateway.service.worker import RequestSource
from gateway.store.service import StoreWriter

_log = logging.getLogger(__name__)

UNKNOWN_LOOK_S: Final = 2.0
"""While it is not known what the service offers, a caller looks again after this."""

_SOON_S: Final = 60.0
_TRIES: Final = 3
_FOUND: Final = "service.found"


class Offer(Discovery, RequestSource[str]):
    """A :class:`~agent.adapters.discovery.Discovery` that answers from memory, and the request that fills it.

    What the service announces and refuses all the same is withdrawn, and that is kept in the store until the service
    announces something else, or another version of itself. What the configuration says goes before both.

    Args:
        client: who to ask with.
        clock: when to ask again.
        on_change: the answer is another one than before.
        dialect: what the configuration says of the service.
        store: keeps what was found out; None keeps it in memory.
        on_described: called with a sentence about what the service takes, after each change.
    """

    name = "discovery"
    kind = Kind.UPKEEP

    def __init__(
        self,
        client: DeviceClient,
        clock: Clock,
        on_change: Callable[[], None],
        *,
        dialect: Dialect | None = None,
        store: StoreWriter | None = None,
        on_described: Callable[[str], None] = lambda _text: None,
    ) -> None:
        server = str(client.connection.base_url)
        super().__init__(client, clock, ServerBook(server, dialect))
        self._asker = client
        self._on_change = on_change
        self._store = store
        self._on_described = on_described
        self._server = server
        self._mutex = threading.Lock()
        self._names: frozenset[str] | None = self.dialect.extensions
        self._announced: frozenset[str] | None = None
        self._version = ""
        self._withdrawn: dict[str, str] = {}
        self._failures = 0
        self._due_s = 0.0

    def begin(self) -> None:
        """Take over what an earlier process found out.

        Raises:
            StorageError: the store cannot be read.
        """
        text = None if self._store is None else self._store.call(lambda store: store.setting(_FOUND))
        try:
            found = json.loads(text or "null")
            if found["server"] == self._server:
                self._announced = frozenset(map(str, found["announced"]))
                self._version = str(found.get("version", ""))
                self._withdrawn = {str(name): str(why) for name, why in found["withdrawn"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return

    @property
    def is_known(self) -> bool:
        """The service was asked, and answered; or the configuration says it."""
        return self._names is not None

    @property
    def trusts_lists(self) -> bool:
        """A command that is missing from the list of its device has ended."""
        lists = self.dialect.command_lists
        return self.knows(COMMAND_STATUS) if lists is None else lists is CommandLists.OPEN

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension.

        Raises:
            TransportError: it is not known yet.
        """
        names = self._names
        if names is None:
            raise TransportError("the service has not announced yet what it offers")
        return extension in names and extension not in self._withdrawn

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`; False while it is not known."""
        return extension in (self._names or ()) and extension not in self._withdrawn

    def forget(self) -> None:
        """The service did not do what it offered: ask again soon; until then the last answer stands."""
        with self._mutex:
            self._due_s = min(self._due_s, self.clock.now().monotonic_s + _SOON_S)

    def withdraw(self, feature: str, reason: str) -> None:
        """The service refused this and took the same request without it: not used until the service changes."""
        with self._mutex:
            if feature in self._withdrawn:
                return
            self._withdrawn = {**self._withdrawn, feature: reason}
        text = "service=withdrawn %s is announced, and the service refuses it: it is not used any more (%s)"
        _log.warning(text, feature, reason)
        self._keep()
        self._on_described(self.describe())

    def describe(self) -> str:
        """What the service takes, in one line."""
        return describe(self._names, frozenset(self._withdrawn), self.dialect)

    def due_at(self, now_s: float) -> float:
        """When :meth:`take` may have something, seconds on the monotonic clock; infinite until :data:`WAKE`."""
        if self.dialect.extensions is not None:
            return now_s + REFRESH_S
        return self._due_s

    def take(self) -> str | None:
        """The next item, for this worker alone until :meth:`release`; None when there is none.

        See :class:`RequestSource`; there is one thing to do.
        """
        return self.name

    def run(self, item: str) -> None:
        """Make the request and store its outcome. See :class:`RequestSource`."""
        del item
        try:
            announcement = ask_for_announcement(self._asker.connection)
        except (ServerFault, UnexpectedAnswer):
            self._failures += 1
            if self._names is not None or self._failures < _TRIES:
                raise
            # Some servers fail on every path that they do not know: it is a plain one until it says otherwise.
            announcement, soon_s = Announcement(), _SOON_S
        else:
            self._failures, soon_s = 0, REFRESH_S
        with self._mutex:
            names, version = announcement.extensions, announcement.version or self._version
            is_new_version = bool(self._version) and version != self._version
            is_other = names != self._announced or is_new_version
            is_kept = not is_other and version == self._version
            is_news = names != self._names or is_new_version
            if self._announced is not None and is_other:
                self._withdrawn = {}
            self._names = self._announced = names
            self._version = version
            self._due_s = self.clock.now().monotonic_s + soon_s
        if not is_kept:
            self._keep()
        if is_news:
            self._on_described(self.describe())
            self._on_change()

    def release(self, item: str) -> None:
        """The worker is done with the item, successful or not. See :class:`RequestSource`."""

    def _keep(self) -> None:
        if self._store is None:
            return
        found = {
            "server": self._server,
            "version": self._version,
            "announced": sorted(self._announced or ()),
            "withdrawn": self._withdrawn,
        }
        text = json.dumps(found)
        self._store.submit(lambda store: store.put_setting(_FOUND, text))


def offered_words(client: DeviceClient, dialect: Dialect) -> str:
    """What the service takes, in one line: it is asked, unless the configuration says it.

    Raises:
        ServiceError: it could not be asked.
    """
    names = dialect.extensions
    return describe(client.discover() if names is None else names, frozenset(), dialect)


def describe(names: frozenset[str] | None, withdrawn: frozenset[str], dialect: Dialect) -> str:
    """What the service takes, in one line.

    Args:
        names: of its extensions; None while they are not known.
        withdrawn: which of them it refuses.
        dialect: what the configuration says of the service.
    """
    if names is None:
        return "what it takes is not known yet"
    used = names - withdrawn
    source = "configured" if dialect.extensions is not None else "announced"
    text = f"extensions ({source}): {', '.join(sorted(used)) or 'none, a plain server'}"
    if withdrawn:
        text += f"; refused, so not used: {', '.join(sorted(withdrawn))}"
    if RECORDED_AT not in used:
        name = dialect.recorded_at_reading
        text += f"; the time of reading goes {f'into the reading {name}' if name else 'nowhere'}"
    lists = dialect.command_lists
    is_truth = COMMAND_STATUS in used if lists is None else lists is CommandLists.OPEN
    what = "shows" if is_truth else "does not show"
    return f"{text}; the list of a device's commands {what} which ones have ended"
