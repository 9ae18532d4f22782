"""Commands from the service: each device's list in a fair order, and what its stream of events brings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from agent.core.listed import FINAL_STATUSES
from agent.core.values import JsonObject
from agent.errors import InvalidMessage, NotFound, Refused, ServiceError, StorageError
from agent.ports import Clock
from agent.runtime.service_clock import ServiceClock
from agent.wire.command_lists import CommandList
from agent.wire.command_states import OPEN, CommandStatus
from agent.wire.commands import CommandRecord
from agent.wire.device_client import DeviceClient
from agent.wire.dialect import CommandLists
from agent.wire.extensions import COMMAND_STATUS
from agent.wire.lists import ITEMS_MAX
from agent.wire.times import to_rfc3339
from gateway.backend import Backend
from gateway.core.budget import Kind
from gateway.core.fair_polling import FairPolling
from gateway.service.offer import UNKNOWN_LOOK_S, Offer
from gateway.service.worker import RequestSource, RetryGate
from gateway.store.command_rows import OPEN_MAX
from gateway.store.values import ListRead, StoredCommand

_NOBODY_S: Final = 3600.0
_UNREADABLE: Final = "unreadable"
# Bad request, unprocessable.
_REFUSES_PARAMETERS: Final = frozenset({400, 422})
# For so many devices commands wait in memory while the disk fails.
_LEFT_OVER_MAX: Final = 100


@dataclass(slots=True)
class _Listing:
    """One look at a device's list, part by part."""

    device_id: str
    look: ListRead
    state_of: Callable[[str | None], str | None]
    ids: set[str] = field(default_factory=set)
    is_news: bool = False
    left: int = 0
    dropped: int = 0
    omitted: int = 0
    etag: str | None = None


class CommandRequests(RequestSource[str]):
    """Asks the service which commands a device has; an item is a device id.

    Args:
        client: for the requests.
        backend: takes the lists.
        polling: in which order.
        clock: the clock of ``polling``.
        service_clock: the service's clock, which learns from the ``Date`` of the client's answers.
        gate: for log lines.
        wake: a device may be due sooner than was thought.
        offer: what the service takes.
    """

    name = "commands"
    kind = Kind.COMMANDS

    def __init__(
        self,
        client: DeviceClient,
        *,
        backend: Backend,
        polling: FairPolling,
        clock: Clock,
        service_clock: ServiceClock,
        gate: RetryGate,
        wake: Callable[[], None],
        offer: Offer,
    ) -> None:
        self._client = client
        self._backend = backend
        self._polling = polling
        self._clock = clock
        self._service_clock = service_clock
        self._gate = gate
        self._wake = wake
        self._offer = offer
        self._lock = threading.Lock()
        self._etags: dict[str, str] = {}
        self._served: set[str] = set()
        self._left_over: dict[str, list[StoredCommand]] = {}

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

    def hint(self, device_id: str) -> None:
        """Ask about this device soon: there may be news."""
        with self._lock:
            self._polling.mark_active(device_id, self._now_s())
        self._wake()

    def stream_changed(self, *, is_connected: bool) -> None:
        """The stream of events runs, or does not."""
        with self._lock:
            self._polling.stream_changed(self._now_s(), is_connected=is_connected)
        self._wake()

    def overdue(self) -> int:
        """How many devices wait for their turn beyond their time."""
        with self._lock:
            return self._polling.overdue(self._now_s())

    # --- RequestSource -----------------------------------------------------------------------------------------------

    def due_at(self, now_s: float) -> float:
        """When :meth:`take` may have something, seconds on the monotonic clock; infinite until :data:`WAKE`."""
        with self._lock:
            due_s = self._polling.next_due_s()
        if due_s is None:
            return now_s + _NOBODY_S
        # A service that announces command-status is never asked for all commands of all times.
        return due_s if self._offer.is_known else max(due_s, now_s + UNKNOWN_LOOK_S)

    def take(self) -> str | None:
        """The next item, for this worker alone until :meth:`release`; None when there is none."""
        with self._lock:
            found = self._polling.next_due(self._now_s())
        return found[0] if found else None

    def release(self, item: str) -> None:
        """The worker is done with the item, successful or not.

        See :class:`RequestSource`; :meth:`run` has passed the outcome to the scheduler.
        """

    def run(self, item: str) -> None:
        """Make the request and store its outcome. See :class:`RequestSource`."""
        try:
            news = self._look(item)
        except NotFound as error:
            self._backend.set_known(item, known=False)
            text = (
                f"commands=unknown_device the service does not know {item[:80]} ({error}): register it, or take its "
                "token back; if this is said of every device, check service.base_url"
            )
            self._gate.report("unknown_device", text)
            with self._lock:
                self._polling.poll_succeeded(item, self._now_s(), news=False)
        except (ServiceError, InvalidMessage, StorageError):
            with self._lock:
                self._polling.poll_failed(item, self._now_s())
            raise
        else:
            with self._lock:
                self._polling.poll_succeeded(item, self._now_s(), news=news)

    def _look(self, device_id: str) -> bool:
        self._keep_left_over(device_id)
        if not self._offer.knows(COMMAND_STATUS):
            return self._read(device_id, None, is_truth=self._offer.trusts_lists)
        try:
            return self._read(device_id, OPEN, is_truth=self._offer.trusts_lists)
        except Refused as error:
            if error.status not in _REFUSES_PARAMETERS:
                raise
            is_news = self._read(device_id, None, is_truth=False, is_refused=True)
            self._offer.withdraw(COMMAND_STATUS, str(error))
            return is_news

    def _read(self, device_id: str, status: str | None, *, is_truth: bool, is_refused: bool = False) -> bool:
        """Read a device's list; whether it brought a new command."""
        with self._lock:
            etag = self._etags.get(device_id)
        holds_history = self._offer.dialect.command_lists not in {CommandLists.OPEN, CommandLists.ONCE}
        began_s = self._now_s()
        look = ListRead(is_truth=is_truth, holds_history=holds_history)
        listing = _Listing(device_id, look, partial(self._offer.state_of, is_refused=is_refused))
        parts = self._client.device_command_parts(device_id, status=status, etag=etag)
        for part in parts:
            if part.unchanged:
                self._backend.set_known(device_id, known=True)
                return False
            listing.etag = part.etag
            # The first answer may be what the service's clock is learned from.
            service_now_s = self._service_clock.now()
            at_s = None if service_now_s is None else service_now_s - (self._now_s() - began_s)
            listing.look = replace(look, at_s=at_s, until_s=service_now_s)
            self._keep_page(listing, part, parts)
        if listing.omitted:
            # What was not read may be open.
            self._backend.finish_list(device_id, listing.ids, replace(listing.look, is_truth=False), [])
        else:
            self._backend.finish_list(device_id, listing.ids, listing.look, self._canceled(device_id, listing.ids))
        self._log_missing_offer(listing)
        # Only what is in the journal may be left out next time.
        with self._lock:
            if listing.etag is None or listing.left or listing.omitted:
                self._etags.pop(device_id, None)
            else:
                self._etags[device_id] = listing.etag
        # A command that is merely still open is no news: its device may be off, and would be asked about all that time.
        return listing.is_news

    def _log_missing_offer(self, listing: _Listing) -> None:
        device = listing.device_id[:80]
        if listing.omitted:
            text = (
                f"commands=too_many device={device} {listing.omitted} or more of its commands are not looked at, since "
                f"one answer lists more than {ITEMS_MAX}; let the service list open commands alone"
            )
            self._gate.report(f"too_many {listing.device_id}", text)
        if listing.left:
            text = (
                f"commands=held_back device={device} {listing.left} commands stay at the service: this device has "
                f"{OPEN_MAX} open ones here already; look who sends it so many"
            )
            self._gate.report(f"held_back {listing.device_id}", text)
        if listing.dropped:
            text = (
                f"commands=dropped device={device} {listing.dropped} of its oldest open commands are not handed out "
                f"any more: {OPEN_MAX} newer ones are open, and this service does not say which have ended"
            )
            self._gate.report(f"dropped {listing.device_id}", text)

    def _keep_page(self, listing: _Listing, part: CommandList, rest: Iterable[CommandList]) -> None:
        """Keep a part of a list, before the service is asked for the next one: it may list each command once only."""
        device_id = listing.device_id
        listed, malformed = to_stored(part.records, device_id, listing.state_of)
        for sentence in (*part.malformed, *malformed, *part.notes.values()):
            self._gate.report("malformed", f"commands=malformed device={device_id[:80]} {sentence}")
        listing.ids.update(command.id for command in listed)
        try:
            found = self._backend.take_listed(device_id, listed, listing.look)
        except StorageError:
            self._keep_in_memory(listing, listed, rest)
            raise
        listing.is_news = listing.is_news or bool(found.new)
        listing.left += found.left
        listing.dropped += found.dropped
        listing.omitted += part.omitted

    def _keep_in_memory(self, listing: _Listing, listed: list[StoredCommand], rest: Iterable[CommandList]) -> None:
        """The disk fails: what was read waits in memory, since the service may not list it again."""
        device_id = listing.device_id
        try:
            for part in rest:
                if len(listed) >= OPEN_MAX:
                    break
                listed += to_stored(part.records, device_id, listing.state_of)[0]
        except (ServiceError, InvalidMessage):
            pass  # the rest is asked for again
        with self._lock:
            self._etags.pop(device_id, None)
            if len(self._left_over) < _LEFT_OVER_MAX:
                self._left_over.setdefault(device_id, []).extend(listed[:OPEN_MAX])

    def _keep_left_over(self, device_id: str) -> None:
        with self._lock:
            listed = self._left_over.get(device_id)
        if listed:
            self._backend.take_listed(device_id, listed, ListRead(self._service_clock.now(), is_truth=False))
            with self._lock:
                self._left_over.pop(device_id, None)

    def _canceled(self, device_id: str, listed: Collection[str]) -> list[StoredCommand]:
        """The commands that left the service's list before they ended since the service canceled them.

        Asked before the list counts, so that a device never sees a command vanish without the reason beside it.
        """
        if not self._offer.knows(COMMAND_STATUS):
            return []
        left_out = self._backend.left_out(device_id, listed)
        if not left_out:
            return []
        try:
            answer = self._client.device_commands(device_id, status=CommandStatus.CANCELED)
        except (Refused, NotFound):
            return []  # a service that lists no states gives no reason either
        answered, _ = to_stored(answer.records, device_id, self._offer.state_of)
        # A service that ignores the filter lists others, too.
        return [each for each in answered if each.id in left_out and each.record["status"] == CommandStatus.CANCELED]

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s


def to_stored(
    records: Collection[CommandRecord], device_id: str, state_of: Callable[[str | None], str | None]
) -> tuple[list[StoredCommand], list[str]]:
    """Records as the store takes them, oldest first, and a sentence for each that cannot be taken.

    Args:
        records: as the service sent them.
        device_id: whose they are.
        state_of: what a state that the service lists says; devices get that and nothing else.
    """
    commands: dict[str, StoredCommand] = {}
    malformed: list[str] = []
    for record in sorted(records, key=lambda each: each.created_at or 0.0):
        if record.device_id is not None and record.device_id != device_id:
            malformed.append("a command for another device is in this device's list: it is skipped")
            continue
        try:
            command_id = record.stable_id()
            state = state_of(record.status)
            shown = _record(record, command_id, device_id, state)
        except InvalidMessage as error:
            malformed.append(str(error))
            continue
        commands[command_id] = StoredCommand(
            device_id,
            command_id,
            shown,
            record.created_at,
            record.expires_at,
            is_open=(state or "").lower() not in FINAL_STATUSES,
        )
    return list(commands.values()), malformed


def _record(record: CommandRecord, command_id: str, device_id: str, state: str | None) -> JsonObject:
    """The record as devices get it: in the service's shape, whatever server it came from."""
    members: JsonObject = {
        "id": command_id,
        "device_id": device_id,
        "command_payload": record.command_payload,
        "status": state,
        "status_reason": record.status_reason,
        "result": record.result,
    }
    for name in ("created_at", "delivered_at", "completed_at", "expires_at"):
        at = getattr(record, name)
        members[name] = None if at is None else to_rfc3339(at)
    for name in record.unreadable_times:
        members[name] = _UNREADABLE  # not None: a device would run a command without an expiry at any time
    return members
