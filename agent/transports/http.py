"""Commands, results and readings over HTTP: by the extensions where the service offers them, else as specified."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from agent.config.model import DeviceConfig
from agent.core.commands import listed_state
from agent.core.outbox import batch_key, is_refused_for_good
from agent.core.timekeeping import marked_time_unknown
from agent.core.values import (
    IN_PROGRESS,
    BatchKey,
    Command,
    CommandPoll,
    Moment,
    Report,
    SendOutcome,
    StoredReading,
)
from agent.errors import (
    ErrorAnswer,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    ServiceError,
    StorageError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.ports import Clock
from agent.store.journal import Journal
from agent.store.outbox import FoundOutbox
from agent.wire import paths
from agent.wire.answers import read_page
from agent.wire.client import DeviceClient, Interrupted, given
from agent.wire.encoding import encode_json, to_rfc3339
from agent.wire.limits import BATCH_MAX
from agent.wire.models import (
    OPEN,
    CommandResult,
    CommandResultPayload,
    CommandStatus,
    NewRuntimeRecord,
    PostSensorData,
    SensorDataRecord,
    describe_faults,
)
from agent.wire.server import (
    BATCH_SENSOR_DATA,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    IDEMPOTENCY_KEY,
    KEY_REUSED,
    LONG_POLL,
    PROFILE_SETTING,
    RECORDED_AT,
    CommandLists,
    ResultPlace,
    ServerProfile,
    describe,
    read_profile,
)

_log = logging.getLogger(__name__)

REFRESH_S: Final = 3600.0
_SOON_S: Final = 60.0
# A server may fail on paths that it does not know: after this many answers that say nothing it counts as plain.
_TRIES: Final = 3
# The dates of so many readings are kept while their fate is not known.
_DATES_MAX: Final = 2 * BATCH_MAX


class Discovery:
    """What the service offers, asked for once an hour, and what was found out about it. Thread-safe.

    What the configuration says (``service.dialect.extensions``) goes before what is announced: then the service is not
    asked. The profile is kept in the journal, logged when it changes, and begins anew with another address or set of
    extensions; what was odd about lists is found out anew by each start.

    Args:
        client: who to ask with.
        clock: when to ask again.
        journal: keeps the profile over restarts; written only when it changes. None keeps it in memory.
        address: the base URL as it is configured.

    Attributes:
        profile: what was found out; replaced as a whole.
    """

    def __init__(
        self, client: DeviceClient, clock: Clock, journal: Journal | None = None, address: str | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._journal = journal
        self._lock = threading.RLock()
        self._ask_at_s: float | None = None
        self._failures = 0
        self.profile = ServerProfile(str(client.base_url) if address is None else address)
        try:
            found = None if journal is None else read_profile(journal.setting(PROFILE_SETTING))
            if found is not None and found.address == self.profile.address:
                self.profile = found
                self._keep(replace(found, notes=()))
        except StorageError as error:
            _log.warning("server=unknown what was found out about it cannot be read: %s", error)

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension; asks the service when it was not asked within the hour.

        Raises:
            ServiceError: it could not be asked and never was before; later failures keep the last answer.
        """
        configured = self._client.dialect.extensions
        if configured is not None:
            return extension in configured
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if not self.profile.was_asked or self._ask_at_s is None or now_s >= self._ask_at_s:
                self._ask(now_s)
            return extension in self.profile.extensions

    def forget(self) -> None:
        """The service did not do what it offered: ask again before the next use."""
        with self._lock:
            self._ask_at_s = None

    def note(self, kind: str, sentence: str) -> None:
        """Something odd about the server's lists, said once for each kind."""
        with self._lock:
            notes = dict(self.profile.notes)
            if kind not in notes:
                _log.warning("commands=odd %s", sentence)
                self._keep(replace(self.profile, notes=tuple(sorted({**notes, kind: sentence}.items()))))

    def _ask(self, now_s: float) -> None:
        known = self.profile
        try:
            found = self._client.discover()
        except ServiceError as error:
            self._failures += 1
            self._ask_at_s = now_s + _SOON_S
            if known.was_asked:
                return
            if not isinstance(error, ServerFault | UnexpectedAnswer) or self._failures < _TRIES:
                raise
            found = ServerProfile()
        else:
            self._failures = 0
            self._ask_at_s = now_s + REFRESH_S
        if known.was_asked and known.extensions != found.extensions:
            _log.info("server=changed what was found out about %s is forgotten", known.address)
            known = ServerProfile(known.address)
        self._keep(replace(known, was_asked=True, extensions=found.extensions))

    def _keep(self, found: ServerProfile) -> None:
        if found == self.profile:
            return
        words = describe(replace(found, notes=()), self._client.dialect)
        if words != describe(replace(self.profile, notes=()), self._client.dialect):
            _log.info("server=found this server: %s", ", ".join(words))
        self.profile = found
        try:
            if self._journal is not None:
                self._journal.put_setting(PROFILE_SETTING, found.to_json())
        except StorageError as error:
            _log.warning("server=found what was found out is not kept over a restart: %s", error)


class _EarlierIsStored(Exception):
    """The service answered 422: it has stored the earlier, larger batch that was sent under this key."""


_Item = tuple[StoredReading, PostSensorData]
"""A reading and what it is sent as."""
_Fates = dict[int, str | None]
"""Row of a reading -> why the service will never store it, or None when it is stored."""


class HttpDevice:
    """A :class:`~agent.ports.CommandSource` and an :class:`~agent.ports.Uplink` on one client.

    ``status=open`` is asked for only where the service offers ``command-status``. A plain server may list everything
    for ever, or each command once: the journal decides what is new.

    Args:
        client: polls are interrupted; what else was begun is finished or times out.
        device_id: whose commands and readings.
        discovery: what the service offers, and what was found out about it.
        product_id: whose table takes results on a plain server; None where it is not known.
        may_hold: whether the service may hold a poll where it offers that.
        recorded_at: when a moment was, epoch seconds; None when nobody can say: then the service takes the time of
            arrival, and the reading says so.
        check_first: is given the first list that was asked for without a state, before it is handed out; may raise.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        discovery: Discovery,
        *,
        product_id: str | None = None,
        may_hold: bool = True,
        recorded_at: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
        check_first: Callable[[Sequence[Command]], object] | None = None,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._discovery = discovery
        self._product_id = product_id
        self._may_hold = may_hold
        self._recorded_at = recorded_at
        self._check_first = check_first
        # Of the last list: its tag, once the journal has the commands, their ids, and why pages are missing.
        self._etag: str | None = None
        self._unacknowledged: str | None = None
        self._listed: frozenset[str] = frozenset()
        self._missing: ServiceError | None = None
        self._dates: dict[str, float] = {}
        self._has_warned = False

    # --- commands -----------------------------------------------------------------------------------------------------

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Where pages of a list are missing, those that came are returned first and the error is raised by the next call.
        """
        missing, self._missing = self._missing, None
        if missing is not None:
            raise missing
        has_states = self._discovery.offers(COMMAND_STATUS)
        held = self._may_hold and wait_s > 0 and self._discovery.offers(LONG_POLL)
        found = self._client.device_commands(
            self._device_id, status=OPEN if has_states else None, wait_s=wait_s if held else 0.0, etag=self._etag
        )
        if found.unchanged:
            return CommandPoll(unchanged=True, held=held)
        commands: list[Command] = []
        malformed = list(found.malformed)
        for record in found.records:
            try:
                commands.append(record.to_command(self._device_id))
            except InvalidMessage as error:
                malformed.append(str(error))
        commands.sort(key=lambda command: command.created_at or 0.0)
        if self._check_first is not None and not has_states:
            self._check_first(commands)
        self._check_first = None
        self._unacknowledged = found.etag
        self._missing = None if isinstance(found.incomplete, Interrupted) else found.incomplete
        self._listed = frozenset(command.id for command in commands)
        for kind, sentence in found.notes.items():
            self._discovery.note(kind, sentence)
        only_open = self._client.dialect.command_lists is CommandLists.OPEN
        return CommandPoll(
            commands=tuple(
                replace(each, status=listed_state(each.status, has_states=has_states, only_open=only_open))
                for each in commands
            ),
            malformed=tuple(malformed),
            held=held,
            is_whole=found.is_whole,
            omitted=found.omitted,
        )

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The last list is committed: from now on only another one is news.

        Nothing is sent to the service: over HTTP the result is what takes a command off its list.
        """
        del command_ids
        self._etag = self._unacknowledged

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back; none where the service cannot be asked.

        See :meth:`agent.ports.CommandSource.canceled`: one more list where the service offers ``command-status``.

        Where the configuration says that lists hold open commands alone, what left the last one was taken back.
        """
        if not self._discovery.offers(COMMAND_STATUS):
            is_open = self._client.dialect.command_lists is CommandLists.OPEN and self._missing is None
            return frozenset(command_ids) - self._listed if is_open else frozenset()
        answer = self._client.device_commands(self._device_id, status=CommandStatus.CANCELED)
        # A service that ignores the filter lists others, too.
        listed = {record.id for record in answer.records if record.status == CommandStatus.CANCELED}
        return frozenset(command_ids) & listed

    def interrupt(self) -> None:
        """End a held poll."""
        self._client.interrupt()

    # --- results ------------------------------------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended. A table has no place for progress: it is left out there.

        Raises:
            NoPlaceForResults: there is none, by the configuration, or since this device's product is not known.
            Refused: it cannot be a result.
            ServiceError: as the service answered.
        """
        place = self._client.dialect.results
        if place is None:
            place = ResultPlace.ENDPOINT if self._discovery.offers(COMMAND_RESULTS) else ResultPlace.TABLE
        try:
            if place is ResultPlace.ENDPOINT:
                body = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
                self._client.report_result(self._device_id, report.command_id, body)
            elif report.status == IN_PROGRESS:
                return
            elif place is ResultPlace.NONE:
                raise NoPlaceForResults("service.dialect.results is none, so results stay on this device")
            else:
                self._record(report)
        except (ValidationError, InvalidMessage) as error:
            raise Refused(400, "invalid_result", describe_faults(error)) from error
        except NotFound:
            # Either the command is gone or the service is another one now: ask again what it offers.
            if place is ResultPlace.ENDPOINT:
                self._discovery.forget()
            raise

    def _record(self, report: Report) -> None:
        """Put a result into the table of results."""
        if self._product_id is None:
            text = "results go into a table of the product, which is not known: set device.product_id"
            raise NoPlaceForResults(text)
        table = self._client.dialect.results_table
        payload = CommandResultPayload(
            command_id=report.command_id,
            status=report.status,  # type: ignore[arg-type]  # checked by the model
            result=report.result,
            error=report.error,
            started_at=None if report.started_at is None else to_rfc3339(report.started_at),
            finished_at=None if report.finished_at is None else to_rfc3339(report.finished_at),
        )
        record = NewRuntimeRecord(
            product_id=self._product_id, device_id=self._device_id, table_name=table, data_payload=payload.to_wire()
        )
        try:
            self._client.create_runtime_record(record, idempotency_key=self._key(f"result-{report.command_id}"))
        except NotFound as error:
            text = (
                f"{error.message}; results of product {record.product_id} go into table {table!r}: create it, or "
                "correct device.product_id, or set service.dialect.results"
            )
            raise NotFound(error.status, error.error, text.lstrip("; ")) from error

    def _key(self, key: str) -> str | None:
        """The ``Idempotency-Key`` to send; None where the service takes none."""
        return key if self._discovery.offers(IDEMPOTENCY_KEY) else None

    # --- readings -----------------------------------------------------------------------------------------------------

    def takes_arrays(self) -> bool:
        """Whether one request carries many readings; may ask the service, and raise its errors."""
        return self._discovery.offers(BATCH_SENSOR_DATA)

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        See :meth:`agent.ports.Uplink.send`. Several readings go as one request where the service takes arrays.
        """
        fates: _Fates = {}
        good: list[_Item] = []
        # Asked before anything is dated: the answer carries the service's time.
        takes_arrays = self.takes_arrays()
        for stored in readings:
            try:
                good.append((stored, self._body(stored)))
            except (ValidationError, InvalidMessage) as error:
                fates[stored.key] = f"invalid_reading: {describe_faults(error)}"
        try:
            if takes_arrays and good and (len(good) > 1 or batch is not None):
                self._send_array(good, fates, batch)
            else:
                self._send_each(good, fates)
        except _EarlierIsStored:
            return SendOutcome(earlier_is_stored=True)
        except ServiceError:
            # What was stored before is known and must be returned; the next call meets the same trouble at once.
            if not fates:
                raise
        return SendOutcome.of(fates)

    def _body(self, stored: StoredReading) -> PostSensorData:
        key, values = stored.idempotency_key, dict(stored.reading.values)
        # The same at every resend: a guess that gets better would be another body under its key.
        wall_s = self._dates.get(key) or self._recorded_at(stored.reading.at)
        recorded_at: str | None = None
        name = self._client.dialect.recorded_at_reading
        if wall_s is None:
            values = marked_time_unknown(values, stored.reading.at)
        else:
            self._dates[key] = wall_s
            if len(self._dates) > _DATES_MAX:
                del self._dates[next(iter(self._dates))]
            if self._discovery.offers(RECORDED_AT):
                recorded_at = to_rfc3339(wall_s)
            elif name is not None and name not in values:
                values[name] = round(wall_s, 3)
            elif name is not None and not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "reading=%s a sensor's own reading has the name of service.dialect.recorded_at_reading: such "
                    "readings go without the time; choose another name",
                    name,
                )
        return PostSensorData(device_id=self._device_id, sensor_data=values, recorded_at=recorded_at)

    def _send_each(self, items: Sequence[_Item], fates: _Fates) -> None:
        """Send them one by one.

        Raises:
            ServiceError: one is not stored, through no fault of its own.
        """
        for stored, body in items:
            key = stored.idempotency_key
            try:
                try:
                    self._client.post_sensor_data(body, idempotency_key=self._key(key))
                except Refused as error:
                    if error.error != KEY_REUSED:
                        raise
                    # What is stored under it is another body, so this one is not: it goes under a key of its content.
                    content = hashlib.sha256(encode_json(body.to_wire())).hexdigest()[:16]
                    self._client.post_sensor_data(body, idempotency_key=self._key(f"{key}-{content}"))
                fates[stored.key] = None
            except (Refused, ServerFault) as error:
                if not is_refused_for_good(error):
                    raise
                fates[stored.key] = str(error)

    def _send_array(self, items: Sequence[_Item], fates: _Fates, batch: BatchKey | None = None) -> None:
        """Send these as one array; one that is refused as a whole is halved until the bad reading stands alone."""
        if len(items) == 1 and batch is None:
            self._send_each(items, fates)
            return
        key = batch_key([stored for stored, _ in items]) if batch is None else batch.key
        try:
            answer = self._client.post_sensor_data_batch([body for _, body in items], idempotency_key=self._key(key))
        except (Refused, ServerFault) as error:
            if error.error == KEY_REUSED:
                if batch is not None and batch.was_sent:
                    raise _EarlierIsStored from None
                # Another array is stored under this key: each reading has its own.
                self._send_each(items, fates)
            elif is_refused_for_good(error):
                middle = (len(items) + 1) // 2
                self._send_array(items[:middle], fates)
                if items[middle:]:
                    self._send_array(items[middle:], fates)
            else:
                raise
            return
        if answer.accepted + len(answer.errors) != len(items):
            # It does not say which ones it left out: asking one by one loses none.
            self._send_each(items, fates)
            return
        faults = {each.index: f"{each.error}: {each.message}".strip(": ") for each in answer.errors}
        fates.update((stored.key, faults.get(index)) for index, (stored, _) in enumerate(items))


# --- a later life of this device that a plain server knows ------------------------------------------------------------
# The state directory is older than that where an overlay forgets at each boot, or a backup was put back. A plain server
# lists commands for ever and says nothing of their ends, so only what this device has stored there shows that it has
# lived on: a result in the table of results, or a reading that came after the state was last written.


# The state is written soon after the answer, and the service's time is known to a second or two.
_AFTER_S: Final = 2.5
_BEFORE_S: Final = 2.0
_READINGS: Final = 100


def find_later_life(
    commands: Sequence[Command],
    client: DeviceClient,
    device: DeviceConfig,
    table: str,
    journal: Journal,
    outbox: FoundOutbox,
    started_s: float | None,
) -> str | None:
    """Why the state is older than what the server knows; None when nothing speaks for that.

    The server is asked only when its list has a command that the journal does not know.

    Args:
        commands: the first list, of which nothing was run yet.
        client: whom to ask.
        device: whose readings and results.
        table: the one that holds results.
        journal: what is known here.
        outbox: as the earlier process left it.
        started_s: when this process began, epoch seconds by the service's clock; None while nobody can say.

    Raises:
        ServiceError: the server could not be asked; the same list may be had again.
        StorageError: the journal cannot be read.
    """
    ids = [command.id for command in commands]
    unknown = set(ids) - set(journal.known(ids))
    if not unknown:
        return None
    query = {"product_id": device.product_id, "device_id": device.device_id, "table_name": table}
    for record in _first_page(client, paths.RUNTIME_DATA, query):
        payload = record.get("data_payload")
        if isinstance(payload, dict) and payload.get("command_id") in unknown:
            return f"the service has a result of command {payload['command_id']}, which is not known here"
    if started_s is None or outbox.used_at is None or outbox.waiting is None:
        return None
    begin_s, end_s = outbox.used_at.wall_s + _AFTER_S, started_s - _BEFORE_S
    own = {"device_id": device.device_id}
    for item in (
        *_first_page(client, paths.SENSOR_DATA, {**own, "order": "desc", "limit": _READINGS}),
        *_first_page(client, paths.SENSOR_DATA, own),
    ):
        try:
            stored = SensorDataRecord.receive(item)
        except InvalidMessage:
            continue
        at_s = stored.received_at or stored.recorded_at
        is_ours = stored.device_id in {None, device.device_id}
        # What waits here may have been stored by a process that ended before it knew.
        is_waiting = any(values.items() <= stored.sensor_data.items() for values in outbox.waiting)
        if is_ours and at_s is not None and begin_s < at_s < end_s and not is_waiting:
            return "the service has readings of this device that came after its state was last written"
    return None


def _first_page(client: DeviceClient, path: str, query: Mapping[str, str | int | None]) -> list[dict[str, Any]]:
    """Empty where this server has no such list."""
    try:
        answer = client.request("GET", path, params=given(query))
        items = read_page(answer.json(), answer.source).items
    except (RateLimited, Unauthorized):
        raise
    except (ErrorAnswer, UnexpectedAnswer) as error:
        _log.debug("state=unjudged %s", error)
        return []
    return [item for item in items if isinstance(item, dict)]
