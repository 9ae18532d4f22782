"""The agent's parts, wired. All but the server of the metrics begins with ``start`` and ends with ``stop``."""

from __future__ import annotations

import logging
import os
import platform
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.app.diagnostics import collect
from agent.app.plugins import load_handlers, load_sensors
from agent.app.starts import put_on_trial
from agent.app.transport import OwnInstance, make_transport
from agent.app.version import VERSION
from agent.config import AgentConfig
from agent.core.admission import SignaturePolicy
from agent.core.timekeeping import PollIntervals, ReportRule, ReportStrategy, phase_s
from agent.core.values import CommandState, JournalEntry, JsonObject, Outcome, Priority, Report
from agent.errors import EXIT_RESTART
from agent.plugins import PluginInfo
from agent.runtime.actor import POLL, Actor, Context, Intervals
from agent.runtime.clocks import PART as CLOCK
from agent.runtime.clocks import ServiceClock, is_synchronized
from agent.runtime.command_poller import CommandPoller
from agent.runtime.engine import STOP_GRACE_S, CommandEngine, command_rules
from agent.runtime.sending import ReadingStream, ResultStream, SendLoop
from agent.runtime.sensing import SensingService
from agent.sensors.reader import SensorReader
from agent.sensors.registry import SensorRegistry

if TYPE_CHECKING:
    from agent.app.run import AgentProcess
    from agent.handlers.maintenance import UpdateConfig
    from agent.wire.client import DeviceClient

_log = logging.getLogger(__name__)

_SLOW_S: Final = 10.0
"""The poll interval soon after the last command."""
# What the stop may take beside the handlers' grace, so that all of it stays below 5 s.
_FLUSH_S: Final = 1.5
_JOIN_S: Final = 0.5
# Usually the first answer of the service gives the time sooner.
_ASK_MACHINE_EVERY_S: Final = 10.0


class Agent:
    """Everything that runs inside one agent.

    Args:
        process: that it runs in; its store is open.
        client: the service, where there is one; closed by the caller.

    Attributes:
        instance: the number of this start.
        handlers: those that commands can name.
        service_clock: what is known of the service's clock.
        reader, intervals: of the sensors.
        engine: runs commands.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker, a trusted key cannot be used, or the
            metrics cannot be served at their address.
        StorageError: the journal cannot be read.
    """

    def __init__(self, process: AgentProcess, client: DeviceClient | None) -> None:
        self.process = process
        self._config = config = process.config
        self._clock = clock = process.clock
        self._journal = journal = process.store.journal
        health, supervisor, store = process.health, process.supervisor, process.store
        device_id, is_safe = config.device.device_id, process.counter.is_safe
        fraction = random.Random().random  # noqa: S311 - spreads waits, guards nothing

        # The time: every answer of the service has it, and the gateway's notices.
        self.service_clock = service_clock = ServiceClock(
            clock, is_synchronized=is_synchronized, times=store.boots, on_state=partial(health.put, CLOCK)
        )
        process.supervisor.schedule(_ASK_MACHINE_EVERY_S, self._ask_machine)

        # The ways to the other side.
        self.instance = own = OwnInstance(journal, health, clock)
        spread_s = config.commands.poll.spread_s
        first_s = phase_s(device_id, "first contact", spread_s) if spread_s else 0.0
        self._transport = transport = make_transport(
            process,
            client,
            service_clock,
            own,
            first_s=first_s,
            fraction=fraction,
            on_connected=self._connected,
        )

        # What goes out.
        context = Context(
            device_id, store, clock, service_clock, health, self._post_result, supervisor.crashed, fraction, first_s
        )
        self._readings = ReadingStream(
            context,
            transport.uplink,
            apart_s=config.outbox.send_every_s,
            takes_arrays=transport.takes_arrays,
            repeats_batches=transport.repeats_batches,
        )
        store.on_readings = self._readings.post
        expects_place = config.service is None or config.service.dialect.results != "none"
        self._results = ResultStream(context, transport.uplink, expects_place=expects_place)

        # Sensors.
        self._sensors = SensorRegistry({}) if is_safe else load_sensors(config)
        for info in self._sensors.listing:
            if info.status not in {"ready", "disabled"}:
                health.put(f"sensor:{info.name}", "unusable", info.reason)
        self.reader = reader = SensorReader(self._sensors.ready.values(), on_crash=supervisor.crashed)
        ready = set(reader.names())
        configured = {sensor.name: sensor.interval_s for sensor in config.sensors if sensor.name in ready}
        configured[POLL] = config.commands.poll.idle_s
        self.intervals = Intervals(journal, configured, on_change=self._interval_changed)
        report = {
            each.name: ReportRule(ReportStrategy(each.report.when), each.report.deadband, each.report.at_least_every_s)
            for each in config.sensors
            if each.name in ready
        }
        priorities = {each.name: Priority[each.priority.upper()] for each in config.sensors}
        self._sensing = SensingService(context, reader, self.intervals, report, priorities)

        # Commands: poller -> engine -> lanes.
        self.handlers = handlers = load_handlers(config, safe_mode=is_safe)
        rules = command_rules(
            handlers,
            handler_key=config.commands.handler_key,
            runs_history=config.commands.first_contact == "all",
            signatures=_signature_policy(config),
        )
        self.engine = engine = CommandEngine(context, handlers, rules, Controls(self), self._start)
        service_clock.on_known = engine.time_is_known
        self._poller = CommandPoller(
            context,
            transport.source,
            engine,
            intervals=self._poll_intervals,
            wait_s=self._poll_wait_s,
            has_lists=transport.has_lists,
        )
        self._metrics = self._metrics_server = None
        if config.metrics is not None:
            from agent.app.metrics import AgentMetrics, MetricsServer  # prometheus_client

            self._metrics = AgentMetrics(self)
            self._metrics_server = MetricsServer(self._metrics.registry, config.metrics.host, config.metrics.port)

    def start(self) -> None:
        """Start in the order in which results flow: nothing produces before its consumer is there."""
        if self._transport.device is not None:
            self._transport.device.start()
        self._start(self._readings)
        self._start(self._results)
        self.engine.resume(self.process.started, is_held=self._is_held)
        self._start(self._sensing)
        self._start(self._poller)

    def stop(self) -> None:
        """Stop in reverse: no new commands, running handlers end, readings and results are flushed."""
        self._poller.stop()
        self._sensing.stop()
        self.engine.stop()
        self._join((*self.engine.lanes(), self._sensing, self._poller), STOP_GRACE_S + _JOIN_S)
        self._results.stop()
        self._readings.stop()
        self._join((self._results, self._readings), _FLUSH_S)
        if self._transport.device is not None:
            self._transport.device.stop()
        self.reader.close()
        if self._metrics_server is not None:
            self._metrics_server.stop()

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
        return [*self.handlers.listing, *self._sensors.listing]

    def _is_held(self, entry: JournalEntry) -> bool:
        # What a handler began that safe mode has not loaded waits for the start that has it again.
        counter = self.process.counter
        is_left_alone = counter.is_safe and entry.handler not in self.handlers.ready
        return is_left_alone or (counter.trial is not None and entry.command.id == counter.trial.command_id)

    def _join(self, services: Iterable[Actor], within_s: float) -> None:
        deadline_s = self._clock.now().monotonic_s + within_s
        for service in services:
            if not service.join(max(0.0, deadline_s - self._clock.now().monotonic_s)):
                # Its thread is a daemon: it ends with the process, and what it did not commit is done again.
                _log.warning("service=%s did not end in time and is left behind", service.name)

    def _start(self, actor: Actor) -> None:
        actor.start()
        # Only one that runs: a lane whose thread cannot be started leaves nothing behind.
        self.process.supervisor.watch(actor.name, actor.stuck_for_s)

    def _ask_machine(self) -> None:
        """Notice when the machine's clock is set."""
        self.service_clock.ask_machine()
        self.process.supervisor.schedule(_ASK_MACHINE_EVERY_S, self._ask_machine)

    def _connected(self) -> None:
        self._readings.post(SendLoop.CONNECTED)
        self._results.post(SendLoop.CONNECTED)
        self._poller.post(CommandPoller.CONNECTED)

    def _post_result(self, message: JournalEntry | Report) -> bool:
        if isinstance(message, JournalEntry) and self._metrics is not None:
            self._metrics.ended(message)
        return self._results.post(message)

    def _poll_wait_s(self) -> float:
        # Who sets the poll interval by command does not want polls to be held.
        return 0.0 if self._transport.has_lists and self.intervals.is_set(POLL) else self._transport.poll_wait_s

    def _poll_intervals(self) -> PollIntervals:
        poll, idle_s = self._config.commands.poll, self.intervals.get(POLL)
        return PollIntervals(min(poll.fast_s, idle_s), min(max(poll.fast_s, _SLOW_S), idle_s), idle_s)

    def _interval_changed(self, name: str) -> None:
        service = self._poller if name == POLL else self._sensing
        service.post(name)


class Controls:
    """The agent's side of :class:`agent.handlers.base.AgentControls` and what its own handlers may call beside that.

    Every method may be called from any handler's thread.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._process = agent.process

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        """Read sensors now: name -> named numbers, or a sentence saying why it could not be read."""
        results = self._agent.reader.read(names)
        return {name: result.values if result.error is None else result.error for name, result in results.items()}

    def set_interval(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds."""
        return self._agent.intervals.set(name, interval_s)

    def identity(self) -> JsonObject:
        """The identity of this device."""
        process, now = self._process, self._process.clock.now()
        return {
            "device_id": process.config.device.device_id,
            "agent_version": VERSION,
            "mode": f"safe: {process.counter.why}" if process.counter.is_safe else "normal",
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "host": platform.node(),
            "python": platform.python_version(),
            "process_id": os.getpid(),
            "boot_id": now.boot_id,
            "uptime_s": round(now.monotonic_s, 1),
            "agent_uptime_s": round(now.monotonic_s - process.started.monotonic_s, 3),
        }

    def recall(self, name: str) -> str | None:
        """The value that a handler stored by ``remember`` under this name; None when there is none."""
        return self._process.store.journal.setting(f"handler.{name}")

    def remember(self, name: str, value: str | None) -> None:
        """Store a handler's short text beside the journal, or forget it with None."""
        self._process.store.journal.put_setting(f"handler.{name}", value)

    def cancel_command(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end."""
        return self._agent.engine.cancel(command_id, why)

    def request_restart(self, reason: str) -> None:
        """End the agent's process in order; the service manager starts it again."""
        self._process.supervisor.end(f"restart: {reason}", EXIT_RESTART)

    @property
    def upkeep(self) -> Controls:
        """For the handlers that mend a device."""
        return self

    def try_configuration(self, command_id: str, config: str | dict[str, Any], settings: UpdateConfig.Settings) -> None:
        """Put a layer on trial and restart with it (see :func:`agent.app.starts.put_on_trial`); returns before that."""
        trial = put_on_trial(self._process, command_id, config, settings)
        reason = f"a configuration on trial: {', '.join(trial.changed) or 'nothing changes'}"
        self._process.restart_when_idle(reason, command_id)

    def set_log_level(self, level: str, for_s: float) -> JsonObject:
        """Set a level for a time; what it was before and when it ends."""
        return self._process.log_level.set(level, for_s)

    @property
    def ca_file(self) -> Path | None:
        """The authorities that the agent trusts; None: those of the system."""
        config = self._process.config
        trusted = [each.ca_file for each in (config.service, config.mqtt) if each is not None and each.ca_file]
        return trusted[0] if trusted else None

    def collect_diagnostics(self) -> JsonObject:
        """Write a bundle without secrets: ``path``, ``size_bytes``, ``sha256``.

        Raises:
            HandlerRejected: it could not be written.
        """
        process = self._process
        status = process.status("running", with_store=True)
        return collect(process.config, process.environ, status, process.log_ring.lines)


def _signature_policy(config: AgentConfig) -> SignaturePolicy | None:
    """Which signed commands this device takes; None where it takes none."""
    signing = config.commands.signing
    if signing.mode == "off":
        return None
    from agent.wire.signed import read_trusted_keys  # cryptography, only where commands are signed

    keys = read_trusted_keys(signing.trusted_keys)
    return SignaturePolicy(
        open=keys.open,
        device_id=config.device.device_id,
        key_ids=keys.key_ids,
        required=signing.mode == "require",
        required_for=frozenset(signing.require_for),
    )
