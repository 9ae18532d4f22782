"""Commands from the service: each device's list in a fair order, and what its stream of events tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from agent.core.budget import Kind
from agent.core.fair_polling import FairPolling
from agent.core.values import JsonObject
from agent.errors import InvalidMessage, NotFound, Refused, ServiceError, StorageError
from agent.gateway.desk import Desk
from agent.gateway.service.worker import Errands, Trouble
from agent.gateway.store.values import StoredCommand
from agent.ports import Clock
from agent.runtime.service_clock import ServiceClock
from agent.wire.commands import FINAL_STATES, OPEN, CommandRecord, CommandStatus
from agent.wire.device_client import DeviceClient
from agent.wire.times import to_rfc3339

_NOBODY_S: Final = 3600.0
_UNREADABLE: Final = "unreadable"


class CommandErrands(Errands[str]):
    """Asks the service which commands a device has; an item is a device id.

    Args:
        client: for the requests.
        desk: takes the lists.
        polling: in which order.
        clock: the clock of ``polling``.
        service_clock: told the service's time.
        trouble: for log lines.
        wake: a device may be due sooner than was thought.
    """

    name = "commands"
    kind = Kind.COMMANDS

    def __init__(
        self,
        client: DeviceClient,
        *,
        desk: Desk,
        polling: FairPolling,
        clock: Clock,
        service_clock: ServiceClock,
        trouble: Trouble,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._desk = desk
        self._polling = polling
        self._clock = clock
        self._service_clock = service_clock
        self._trouble = trouble
        self._wake = wake
        self._lock = threading.Lock()
        self._etags: dict[str, str] = {}
        self._served: set[str] = set()

    # --- which devices --------------------------------------------------------------------------------------------

    def serve(self, device_ids: Collection[str]) -> None:
        """The service is asked about these devices from now on, and about no others."""
        now_s = self._now_s()
        with self._lock:
            for device_id in device_ids:
                self._polling.add(device_id, now_s)
            for device_id in self._served - set(device_ids):
                self._polling.remove(device_id)
                self._etags.pop(device_id, None)
            self._served = set(device_ids)
        self._wake()

    def asks_about(self, device_id: str) -> bool:
        """Whether the service is asked about this device."""
        with self._lock:
            return device_id in self._served

    def hint(self, device_id: str) -> None:
        """There may be news for this device: ask soon."""
        with self._lock:
            self._polling.active(device_id, self._now_s())
        self._wake()

    def news_are_told(self, *, told: bool) -> None:
        """The stream of events runs, or does not."""
        with self._lock:
            self._polling.news_are_told(self._now_s(), told=told)
        self._wake()

    def overdue(self) -> int:
        """How many devices wait for their turn beyond their time."""
        with self._lock:
            return self._polling.overdue(self._now_s())

    # --- Errands --------------------------------------------------------------------------------------------------

    def due_at(self, now_s: float) -> float:
        """See :class:`Errands`."""
        with self._lock:
            due_s = self._polling.next_due_s()
        return now_s + _NOBODY_S if due_s is None else due_s

    def take(self) -> str | None:
        """See :class:`Errands`."""
        with self._lock:
            found = self._polling.next_due(self._now_s())
        return found[0] if found else None

    def release(self, item: str) -> None:
        """See :class:`Errands`; :meth:`run` has told the scheduler."""

    def run(self, item: str) -> None:
        """See :class:`Errands`."""
        try:
            news = self._look(item)
        except NotFound as error:
            self._desk.set_known(item, known=False)
            text = (
                f"commands=unknown_device the service does not know {item[:80]} ({error}): register it, or take its "
                "token back; if this is said of every device, check service.base_url"
            )
            self._trouble.tell("unknown_device", text)
            with self._lock:
                self._polling.saw(item, self._now_s(), news=False)
        except (ServiceError, InvalidMessage, StorageError):
            with self._lock:
                self._polling.failed(item, self._now_s())
            raise
        else:
            with self._lock:
                self._polling.saw(item, self._now_s(), news=news)

    def _look(self, device_id: str) -> bool:
        with self._lock:
            etag = self._etags.get(device_id)
        answer = self._client.device_commands(device_id, status=OPEN, etag=etag)
        if answer.server_time is not None:
            self._service_clock.observe(answer.server_time)
        if answer.unchanged:
            self._desk.set_known(device_id, known=True)
            return False
        listed, malformed = to_stored(answer.records, device_id)
        for sentence in (*answer.malformed, *malformed, *answer.notes.values()):
            self._trouble.tell("malformed", f"commands=malformed device={device_id[:80]} {sentence}")
        if answer.incomplete is not None:
            # What is missing may be on the pages that did not come, so nothing is concluded from it.
            for command in listed:
                self._desk.take_pushed(command)
            raise answer.incomplete
        found = self._desk.take_list(device_id, listed, self._canceled(device_id, listed))
        # Only what is in the journal may be left out next time.
        with self._lock:
            if answer.etag is None:
                self._etags.pop(device_id, None)
            else:
                self._etags[device_id] = answer.etag
        # A command that is merely still open is no news: its device may be off, and would be asked about all that time.
        return bool(found.new)

    def _canceled(self, device_id: str, listed: Sequence[StoredCommand]) -> list[StoredCommand]:
        """What the service says about commands that have left its list before they ended: were they canceled?

        Asked before the list is taken, so that a device never sees a command vanish without the reason beside it.
        """
        left_out = self._desk.left_out(device_id, listed)
        if not left_out:
            return []
        try:
            answer = self._client.device_commands(device_id, status=CommandStatus.CANCELED)
        except (Refused, NotFound):
            return []  # a service that lists no states tells no reason either
        told, _ = to_stored(answer.records, device_id)
        # A service that ignores the filter lists others, too.
        return [each for each in told if each.id in left_out and each.record["status"] == CommandStatus.CANCELED]

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s


def to_stored(records: Collection[CommandRecord], device_id: str) -> tuple[list[StoredCommand], list[str]]:
    """Records as the store takes them, oldest first, and a sentence for each that cannot be taken."""
    commands: dict[str, StoredCommand] = {}
    malformed: list[str] = []
    for record in sorted(records, key=lambda each: each.created_at or 0.0):
        if record.device_id is not None and record.device_id != device_id:
            malformed.append("a command for another device is in this device's list: it is skipped")
            continue
        try:
            command_id = record.stable_id()
            is_open = record.status not in FINAL_STATES
            shown = _record(record, command_id, device_id)
        except InvalidMessage as error:
            malformed.append(str(error))
            continue
        commands[command_id] = StoredCommand(
            device_id, command_id, shown, record.created_at, record.expires_at, is_open
        )
    return list(commands.values()), malformed


def _record(record: CommandRecord, command_id: str, device_id: str) -> JsonObject:
    """The record as devices get it: in the service's shape, whatever server it came from."""
    members: JsonObject = {
        "id": command_id,
        "device_id": device_id,
        "command_payload": record.command_payload,
        "status": record.status,
        "status_reason": record.status_reason,
        "result": record.result,
    }
    for name in ("created_at", "delivered_at", "completed_at", "expires_at"):
        at = getattr(record, name)
        members[name] = None if at is None else to_rfc3339(at)
    for name in record.unreadable_times:
        members[name] = _UNREADABLE  # not None: a device would run a command without an expiry at any time
    return members
