"""The agent's parts, wired. Building starts nothing; :meth:`Agent.start` and :meth:`Agent.stop` mirror each other."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agent.app.instance import OwnInstance
from agent.app.links import LinkParts, Links, make_links
from agent.app.plugins import load_handlers, load_sensors, priorities, report_rules
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.core.poll_interval import PollIntervals
from agent.core.schedule import phase_s
from agent.core.signed import SignaturePolicy
from agent.core.timekeeping import ServiceTime
from agent.core.values import CommandState, JournalEntry, Moment, Outcome, Report
from agent.exit_codes import EXIT_RESTART
from agent.plugins import PluginInfo
from agent.runtime.clocks import is_synchronized
from agent.runtime.command_poller import CommandPoller, RemoteCancels
from agent.runtime.controls import POLL, Controls, IntervalChanged, Intervals
from agent.runtime.engine import CommandEngine, EngineParts
from agent.runtime.failure_log import REPEAT_AFTER_S
from agent.runtime.handler_call import command_rules
from agent.runtime.health import Health
from agent.runtime.intake import Intake
from agent.runtime.readings import ReadingStream
from agent.runtime.results import ResultStream
from agent.runtime.retry_policy import RetryPolicy
from agent.runtime.sending import SendLoop, SendParts
from agent.runtime.sensing import RulesChanged, SensingService
from agent.runtime.service import Actor, ServiceThread
from agent.runtime.service_clock import PART as CLOCK
from agent.runtime.service_clock import ServiceClock
from agent.runtime.supervisor import Supervisor
from agent.sensors.reader import SensorReader
from agent.sensors.registry import SensorRegistry

if TYPE_CHECKING:
    from agent.handlers.upkeep import Upkeep
    from agent.ports import Clock
    from agent.store.journal import Journal
    from agent.store.writer import Store
    from agent.wire.device_client import DeviceClient

_log = logging.getLogger(__name__)

_SLOW_S: Final = 10.0
"""The poll interval soon after the last command."""
_PROGRESS_EVERY_S: Final = 2.0
STOP_GRACE_S: Final = 2.5
"""How long running commands may go on after SIGTERM; the whole stop takes at most 2 s more."""
# What the stop may take beside the handlers' grace, so that all of it stays below 5 s.
_FLUSH_S: Final = 1.5
_JOIN_S: Final = 0.5
# A gateway's notice gives the time to the millisecond and travels for about this long.
_NOTICE_RESOLUTION_S: Final = 0.2
_CHECK_CLOCK_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """The process that an agent runs in.

    Attributes:
        clock: both clocks.
        supervisor: takes crashes and restarts; watches the services.
        health: takes the state of each part.
        started: when it began.
        upkeep: what the handlers that mend ask of it.
    """

    clock: Clock
    supervisor: Supervisor
    health: Health
    started: Moment
    upkeep: Upkeep


class Agent:
    """Everything that runs inside one agent.

    Args:
        config: whole and consistent.
        credentials: of the broker, where there is one.
        client: the service, where there is one; closed by the caller.
        store: journal and outbox; likewise.
        process: that it runs in.
        safe_mode: why the agent runs with its mending handlers only, one sentence; empty when it runs with all.
        on_trial: the command whose configuration is on trial; :meth:`conclude` ends it.
        on_ended: called with each command that ended, from whichever thread ended it.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker, or a trusted key cannot be used.
        StorageError: the journal cannot be read.
    """

    def __init__(
        self,
        config: AgentConfig,
        credentials: Credentials,
        client: DeviceClient | None,
        store: Store,
        process: Process,
        *,
        safe_mode: str = "",
        on_trial: str | None = None,
        on_ended: Callable[[JournalEntry], object] = lambda _entry: None,
    ) -> None:
        self._config = config
        self._upkeep = process.upkeep
        self._safe_mode = safe_mode
        self._on_trial = on_trial
        self._on_ended = on_ended
        self._journal: Journal = store.journal
        self._store = store
        self._clock = clock = process.clock
        self._supervisor = process.supervisor
        self._health = health = process.health
        self._started = process.started
        self._fraction = random.Random().random  # noqa: S311 - spreads waits, guards nothing
        self._service_clock = ServiceClock(
            clock,
            is_synchronized=is_synchronized,
            times=store.boots,
            on_state=lambda state, detail: health.put(CLOCK, state, detail),
        )
        self._check_clock()
        if client is not None:
            client.connection.on_date = self._service_clock.observe
        # A client passes on the time of every answer; without one the gateway's notices do.
        self._on_server_time = _ignore if client is not None else self._observe_server_time
        self._own_instance = OwnInstance(self._journal, health, clock)
        spread_s = config.commands.poll.spread_s
        self._first_s = phase_s(config.device.device_id, "first contact", spread_s) if spread_s else 0.0
        self._links = self._make_links(credentials, client)
        self._outbox = store.outbox
        self._lanes: list[ServiceThread] = []
        self._build_uplinks()
        self._build_sensors()
        store.on_readings = self._readings.post
        self._build_commands()

    @property
    def starts(self) -> int:
        """How many starts there were with this store."""
        return self._own_instance.instance.starts

    @property
    def handler_names(self) -> frozenset[str]:
        """The handlers that commands can name."""
        return frozenset(self._handlers.names())

    def service_time(self) -> ServiceTime:
        """What is known of the service's clock."""
        return self._service_clock.estimate

    def start(self) -> None:
        """Start in the order in which results flow: nothing produces before its consumer is there."""
        self._links.start()
        self._readings.start()
        self._results.start()
        self._engine.resume(self._started, is_held=self._is_held)
        self._sensing.start()
        self._source.start()

    def conclude(self, command_id: str, outcome: Outcome) -> None:
        """End a command that no lane of this process runs, unless it has ended already.

        Raises:
            StorageError: it could not be written.
        """
        entry = self._journal.known([command_id]).get(command_id)
        if entry is not None and entry.state in {CommandState.RECEIVED, CommandState.STARTED}:
            finished = self._journal.finish(command_id, outcome, self._clock.now())
            _log.info("command=%s handler=%s state=%s", command_id, entry.handler, outcome.status)
            self._post_result(finished)

    def running(self) -> set[str]:
        """The commands whose handlers are under way, without those that wait for another start.

        Raises:
            StorageError: the journal cannot be read.
        """
        started = self._journal.in_state(CommandState.STARTED)
        return {entry.command.id for entry in started if not self._is_held(entry)}

    def plugins(self) -> Sequence[PluginInfo]:
        """Handlers and sensors, with their states."""
        return [*self._handlers.listing(), *self._sensors.listing()]

    def apply(self, config: AgentConfig) -> None:
        """Take over what can change while everything runs: the intervals, and which readings are sent."""
        self._config = config
        self._intervals.configure(self._configured_intervals())
        ready = set(self._reader.names())
        self._sensing.post(RulesChanged({name: rule for name, rule in report_rules(config).items() if name in ready}))
        self._source.post(IntervalChanged(POLL))

    def _is_held(self, entry: JournalEntry) -> bool:
        # What a handler began that safe mode has not loaded waits for the start that has it again.
        is_left_alone = bool(self._safe_mode) and self._handlers.get(entry.handler) is None
        return is_left_alone or entry.command.id == self._on_trial

    def _configured_intervals(self) -> dict[str, float]:
        ready = set(self._reader.names())
        configured = {sensor.name: sensor.interval_s for sensor in self._config.sensors if sensor.name in ready}
        return {**configured, POLL: self._config.commands.poll.idle_s}

    def stop(self) -> None:
        """Stop in reverse: no new commands, running handlers end, readings and results are flushed."""
        self._source.stop()
        self._sensing.stop()
        self._engine.stop()
        for lane in self._lanes:
            lane.stop()
        deadline_s = self._clock.now().monotonic_s + STOP_GRACE_S + _JOIN_S
        for service in (*self._lanes, self._sensing, self._source):
            self._join(service, deadline_s)
        uplinks = (self._results, self._readings)
        for service in uplinks:
            service.stop()
        deadline_s = self._clock.now().monotonic_s + _FLUSH_S
        for service in uplinks:
            self._join(service, deadline_s)
        self._links.stop()
        self._reader.close()

    def _join(self, service: ServiceThread, deadline_s: float) -> None:
        if not service.join(max(0.0, deadline_s - self._clock.now().monotonic_s)):
            # Its thread is a daemon: it ends with the process, and what it did not commit is done again.
            _log.warning("service=%s did not end in time and is left behind", service.name)

    def _make_links(self, credentials: Credentials, client: DeviceClient | None) -> Links:
        parts = LinkParts(
            clock=self._clock,
            journal=self._journal,
            health=self._health,
            fraction=self._fraction,
            wall_of=self._service_clock.recorded_at,
            on_time_known=self._service_clock.on_time_known,
            first_s=self._first_s,
            poll_is_set=lambda: self._intervals.is_set(POLL),
            on_connected=self._connected,
            found=self._store.found,
            started=self._started,
            instance=self._own_instance,
            on_crash=self._supervisor.crashed,
        )
        return make_links(self._config, credentials, client, parts)

    def _check_clock(self) -> None:
        """Notice when the machine's clock is set, also while nothing asks for the time."""
        self._service_clock.look()
        self._supervisor.schedule(_CHECK_CLOCK_S, self._check_clock)

    def _observe_server_time(self, server_time: float) -> None:
        self._service_clock.observe(server_time, resolution_s=_NOTICE_RESOLUTION_S)

    def _connected(self) -> None:
        self._readings.post(SendLoop.CONNECTED)
        self._results.post(SendLoop.CONNECTED)
        self._source.post(CommandPoller.CONNECTED)

    def _build_sensors(self) -> None:
        config = self._config
        self._sensors = registry = SensorRegistry.load({}) if self._safe_mode else load_sensors(config)
        for info in registry.listing():
            if info.status not in {"ready", "disabled"}:
                self._health.put(f"sensor:{info.name}", "unusable", info.reason)
        self._reader = SensorReader(registry.ready(), on_crash=self._supervisor.crashed)
        ready = set(self._reader.names())
        self._intervals = Intervals(self._journal, self._configured_intervals(), on_change=self._interval_changed)
        sensing = SensingService(
            device_id=config.device.device_id,
            rules={name: rule for name, rule in report_rules(config).items() if name in ready},
            priorities=priorities(config),
            reader=self._reader,
            intervals=self._intervals,
            outbox=self._outbox,
            clock=self._clock,
            health=self._health,
            repeat_after_s=REPEAT_AFTER_S,
        )
        self._sensing = self._service(sensing)

    def _build_uplinks(self) -> None:
        config = self._config
        parts = SendParts(
            uplink=self._links.uplink,
            journal=self._journal,
            clock=self._clock,
            health=self._health,
            fraction=self._fraction,
            on_server_time=self._on_server_time,
            retry_max_s=self._links.retry_max_s,
            first_s=self._first_s,
        )
        readings = ReadingStream(
            parts,
            self._outbox,
            apart_s=config.outbox.send_every_s,
            takes_arrays=self._links.takes_arrays,
            repeats_batches=self._links.repeats_batches,
        )
        expects_place = config.service is None or config.service.dialect.results != "none"
        results = ResultStream(parts, wall_of=self._service_clock.recorded_at, expects_place=expects_place)
        self._readings = self._service(readings)
        self._results = self._service(results)

    def _build_commands(self) -> None:
        config, commands = self._config, self._config.commands
        self._handlers = registry = load_handlers(config, safe_mode=bool(self._safe_mode))
        self._rules = command_rules(
            registry,
            handler_key=commands.handler_key,
            first_contact=commands.first_contact,
            signatures=self._read_signatures(),
        )
        controls = Controls(
            device_id=config.device.device_id,
            version=VERSION,
            clock=self._clock,
            reader=self._reader,
            intervals=self._intervals,
            journal=self._journal,
            restart=lambda reason: self._supervisor.end(f"restart: {reason}", EXIT_RESTART),
            upkeep=self._upkeep,
            mode=f"safe: {self._safe_mode}" if self._safe_mode else "normal",
            cancel=self._cancel,
        )
        engine_parts = EngineParts(
            journal=self._journal,
            rules=self._rules,
            find=partial(registry.find, handler_key=commands.handler_key),
            clock=self._clock,
            health=self._health,
            service_now=self._service_clock.now,
            wall_of=self._service_clock.recorded_at,
            post_result=self._post_result,
            device_id=config.device.device_id,
            controls=controls,
            stop_grace_s=STOP_GRACE_S,
            progress_every_s=_PROGRESS_EVERY_S,
        )
        self._engine = CommandEngine(engine_parts, self._start_lane)
        self._service_clock.on_time_known(self._engine.time_is_known)
        intake = Intake(
            journal=self._journal,
            rules=self._rules,
            engine=self._engine,
            clock=self._clock,
            service_now=self._service_clock.now,
            post_result=self._post_result,
            only_pushed=self._links.only_pushed,
        )
        source = CommandPoller(
            source=self._links.source,
            take=intake.take,
            look=RemoteCancels(self._links.source, self._engine).look,
            intervals=self._poll_intervals,
            wait_s=self._links.poll_wait_s,
            is_busy=self._engine.is_busy,
            clock=self._clock,
            retry_policy=RetryPolicy(self._fraction),
            health=self._health,
            on_server_time=self._on_server_time,
            fraction=self._fraction,
            first_s=self._first_s,
            repeat_after_s=REPEAT_AFTER_S,
        )
        self._source = self._service(source)

    def _post_result(self, message: JournalEntry | Report) -> bool:
        if isinstance(message, JournalEntry):
            self._on_ended(message)
        return self._results.post(message)

    def _read_signatures(self) -> SignaturePolicy | None:
        signing = self._config.commands.signing
        if signing.mode == "off":
            return None
        from agent.wire.signed import read_trusted_keys  # cryptography, only where commands are signed

        keys = read_trusted_keys(signing.trusted_keys)
        return SignaturePolicy(
            open=keys.open,
            device_id=self._config.device.device_id,
            key_ids=keys.key_ids,
            required=signing.mode == "require",
            required_for=frozenset(signing.require_for),
            handler_key=self._config.commands.handler_key,
        )

    def _service(self, actor: Actor) -> ServiceThread:
        service = ServiceThread(actor, self._clock, self._supervisor.crashed)
        self._supervisor.watch(service.name, service.stuck_for_s)
        return service

    def _start_lane(self, actor: Actor) -> ServiceThread:
        lane = ServiceThread(actor, self._clock, self._supervisor.crashed)
        lane.start()
        # Only one that runs: a lane whose thread cannot be started leaves nothing behind.
        self._supervisor.watch(lane.name, lane.stuck_for_s)
        self._lanes.append(lane)
        return lane

    def _cancel(self, command_id: str, why: str) -> str:
        return self._engine.cancel(command_id, why)

    def _poll_intervals(self) -> PollIntervals:
        poll, idle_s = self._config.commands.poll, self._intervals.get(POLL)
        return PollIntervals(min(poll.fast_s, idle_s), min(max(poll.fast_s, _SLOW_S), idle_s), idle_s)

    def _interval_changed(self, name: str) -> None:
        service = self._source if name == POLL else self._sensing
        service.post(IntervalChanged(name))


def _ignore(_server_time: float) -> None:
    """For a client, whose connection has passed on the time already, with its age."""
