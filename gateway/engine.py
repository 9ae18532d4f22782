"""The engine of the gateway: builds, wires, starts in order, stops in reverse."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from agent.config.credentials import Credentials
from agent.errors import TransportError
from agent.ports import Clock
from agent.runtime.health import Health
from agent.runtime.service import Actor, ServiceThread
from agent.runtime.service_clock import ServiceClock
from agent.runtime.supervisor import Supervisor
from gateway.backend import Backend
from gateway.command_cache import CommandCache
from gateway.config import GatewayConfig
from gateway.core.budget import Budget, BudgetState
from gateway.core.fair_polling import FairIntervals, FairPolling
from gateway.devices.enrolling import Enroller
from gateway.devices.roster import Roster
from gateway.housekeeping import Housekeeper
from gateway.http.enrollment import Enrollment
from gateway.http.front import HttpFront, http_settings
from gateway.mqtt.front import MqttFront, mqtt_settings
from gateway.ports import Front, Hints, TokenCheck
from gateway.service.commands import CommandRequests
from gateway.service.events import EventService
from gateway.service.meter import Meter, make_client
from gateway.service.offer import Offer
from gateway.service.readings import ReadingRequests
from gateway.service.results import ResultRequests
from gateway.service.worker import WAKE, RequestSource, RetryGate, Worker
from gateway.store.service import StoreWriter
from gateway.store.values import StoreStats

_SHORT_AFTER_S: Final = 60.0  # the quota counts as short when a reading has waited for so long
_CLIENT_ID: Final = "mqtt.client_id"
STOP_FRONT_S: Final = 5.0
"""How long each front may take to end."""
FIRST_ANSWER_S: Final = 3.0
"""So long the first answer of the service, which brings its clock, is waited for before devices are served."""


class Engine:
    """Everything between the fronts and the service.

    Args:
        config: what the gateway is to do.
        credentials: the key pair.
        store: started already.
        tokens: of the devices.
        clock: for everything.
        supervisor: takes crashes; watches for progress.
        health: takes the state of each part.

    Raises:
        ConfigurationError: an address, a key or a certificate cannot be used; nothing was started.
        StorageError: the store cannot be read.
    """

    def __init__(
        self,
        config: GatewayConfig,
        credentials: Credentials,
        *,
        store: StoreWriter,
        tokens: TokenCheck,
        clock: Clock,
        supervisor: Supervisor,
        health: Health,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._health = health
        self._fraction = random.SystemRandom().random
        self._meter = Meter(Budget(), self._now_s)
        self._service_clock = ServiceClock(clock, trust_wall=True)
        self._time_settled = threading.Event()
        self._service_clock.on_time_known(self._time_settled.set)
        self.command_cache = CommandCache(self._service_now)
        self.roster = Roster(tokens.device_ids, self._now_s)
        self._clients = [make_client(config.service, credentials, self._meter, config.connections) for _ in range(3)]
        for client in self._clients:
            client.connection.on_date = self._service_clock.observe
        self._threads: dict[str, list[ServiceThread]] = {}
        self.backend = Backend(
            store,
            self.command_cache,
            clock,
            hints=self._hints,
            on_arrived=self._device_came,
            on_result=self._result_came,
            on_reading=self._reading_came,
        )
        self._build_service_side()
        self.fronts: list[Front] = self._build_fronts(tokens)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the state of an earlier process, then start the service side, then the fronts.

        Raises:
            ConfigurationError, OSError: a front cannot serve.
            StorageError: the store cannot be read.
        """
        self.backend.begin()
        self._offer.begin()
        self._health.put("service", "ok", self._offer.describe())
        self.commands.serve(self.roster.devices())
        if self._offer.is_known:
            self._ask_for_time()
        for threads in self._threads.values():
            for thread in threads:
                thread.start()
        # Devices are sent the service's clock, and a new one separates history from work by it. This machine's clock
        # takes its place only where the service cannot be reached, sends no time, or has nothing to be asked.
        self._time_settled.wait(FIRST_ANSWER_S)
        for front in self.fronts:
            front.start()

    def stop(self, drain_s: float) -> None:
        """Take no more requests, finish what is under way, end.

        Args:
            drain_s: how long requests under way may take; what does not make it is in the store.
        """
        for front in self.fronts:
            front.stop(STOP_FRONT_S)
        self._meter.close()
        threads = [thread for each in self._threads.values() for thread in each]
        for thread in threads:
            thread.stop()
        self._clients[0].interrupt()
        until_s = self._now_s() + drain_s
        for thread in threads:
            thread.join(max(0.1, until_s - self._now_s()))
        for client in self._clients:
            client.close()

    # --- how it is ------------------------------------------------------------------------------------------------

    @property
    def stats(self) -> StoreStats:
        """Counts of the store, at most some seconds old."""
        return self._housekeeper.stats

    def budget(self) -> BudgetState:
        """State of the key's quota."""
        return self._meter.state()

    def check_fronts(self) -> None:
        """Put the state of each front into the health."""
        for front in self.fronts:
            status = front.status()
            is_well = status.state in {"listening", "connected"}
            self._health.put(front.name, "ok" if is_well else status.state, "" if is_well else status.detail)

    # --- building -------------------------------------------------------------------------------------------------

    def _request_ended(self, name: str, error: Exception | None) -> None:
        """After a request that brought no time: ask the service for it, or go on without."""
        if self._time_settled.is_set():
            return
        if isinstance(error, TransportError) or (error is None and name == self.commands.name):
            self._time_settled.set()
        elif error is None:
            self._ask_for_time()  # a plain server answered 404 when it was asked for its extensions, which says no time

    def _ask_for_time(self) -> None:
        """Fetch the commands of one device now: the answer has a ``Date``. Without devices it is not needed."""
        device_id = min(self.roster.devices(), default=None)
        if device_id is None:
            self._time_settled.set()
        else:
            self.commands.hint(device_id)

    def _build_service_side(self) -> None:
        config, clock = self._config, self._clock
        polled, sent, streamed = self._clients
        self._offer = offer = Offer(
            sent,
            clock,
            on_change=self._offer_changed,
            dialect=config.service.dialect.dialect(),
            store=self._store,
            on_described=lambda text: self._health.put("service", "ok", text),
        )
        intervals = FairIntervals(config.commands.fast_s, config.commands.idle_s, config.commands.reconcile_s)
        commands_gate = self._make_gate("commands")
        self.commands = CommandRequests(
            polled,
            backend=self.backend,
            polling=FairPolling(intervals),
            clock=clock,
            service_clock=self._service_clock,
            gate=commands_gate,
            wake=lambda: self._wake("commands"),
            offer=offer,
        )
        self._results = ResultRequests(sent, offer, self._store, clock)
        readings_gate = self._make_gate("readings")
        self._readings = ReadingRequests(
            sent,
            offer,
            store=self._store,
            backend=self.backend,
            clock=clock,
            gate=readings_gate,
            gather_s=config.readings.gather_s,
        )
        self._add(offer.name, Worker(offer, self._meter, clock, self._make_gate(offer.name)))
        self._start_thread(self.commands, commands_gate)
        self._start_thread(self._results, self._make_gate("results"))
        self._start_thread(self._readings, readings_gate)
        self._housekeeper = Housekeeper(
            store=self._store,
            backend=self.backend,
            roster=self.roster,
            commands=self.commands,
            check_fronts=self.check_fronts,
            clock=clock,
            service_now=self._service_now,
            repeat_after_s=config.logging.repeat_after_s,
        )
        self._add("housekeeping", self._housekeeper)
        if config.commands.events == "auto":
            events = EventService(
                streamed,
                offer,
                backend=self.backend,
                commands=self.commands,
                store=self._store,
                fetches=self.roster.serves,
                meter=self._meter,
                clock=clock,
                gate=self._make_gate("events"),
                service_now=self._service_clock.now,
            )
            self._add("events", events)

    def _build_fronts(self, tokens: TokenCheck) -> list[Front]:
        config, crashed = self._config, self._supervisor.crashed
        fronts: list[Front] = []
        if config.http.enabled:
            enroller = Enroller(config.state_dir, config.service, self._credentials)
            fronts.append(
                HttpFront(
                    http_settings(config.http),
                    self.backend,
                    tokens,
                    enrollment=Enrollment(enroller.enroll),
                    wall=self._service_now,
                    on_crash=crashed,
                )
            )
        if config.mqtt.enabled:
            fronts.append(
                MqttFront(
                    mqtt_settings(config.mqtt, config.mqtt.client_id or self._own_client_id()),
                    self.backend,
                    serves=self.roster.serves,
                    devices=self.roster.devices,
                    clock=self._clock,
                    service_now=self._service_now,
                    fraction=self._fraction,
                    repeat_after_s=config.logging.repeat_after_s,
                    on_crash=crashed,
                )
            )
        return fronts

    def _own_client_id(self) -> str:
        """The same at every start, so that the broker keeps the messages for it."""
        found = self._store.call(lambda store: store.setting(_CLIENT_ID))
        if found is not None:
            return found
        new = f"gateway-{uuid.uuid4().hex[:12]}"
        self._store.call(lambda store: store.put_setting(_CLIENT_ID, new))
        return new

    def _make_gate(self, name: str) -> RetryGate:
        on_end = partial(self._request_ended, name) if name in _BRING_THE_TIME else lambda _error: None
        repeat_after_s = self._config.logging.repeat_after_s
        return RetryGate(name, self._clock, self._health, self._fraction, repeat_after_s, on_end=on_end)

    def _start_thread(self, source: RequestSource[Any], gate: RetryGate) -> None:
        for number in range(self._config.connections):
            self._add(source.name, Worker(source, self._meter, self._clock, gate, number))

    def _add(self, name: str, actor: Actor) -> None:
        thread = ServiceThread(actor, self._clock, self._supervisor.crashed)
        self._supervisor.watch(_probe(thread))
        self._threads.setdefault(name, []).append(thread)

    # --- wiring ---------------------------------------------------------------------------------------------------

    def _wake(self, name: str) -> None:
        for thread in self._threads.get(name, ()):
            thread.post(WAKE)

    def _offer_changed(self) -> None:
        for name in ("commands", "events", "results", "readings"):
            self._wake(name)

    def _device_came(self, device_id: str) -> None:
        self.commands.hint(device_id)

    def _result_came(self) -> None:
        if self._results.wake():
            self._wake("results")

    def _reading_came(self) -> None:
        if self._readings.wake():
            self._wake("readings")

    def _hints(self, device_id: str) -> Hints:
        del device_id
        oldest_s = self.stats.oldest_wall_s
        waits_s = 0.0 if oldest_s is None else self._clock.now().wall_s - oldest_s
        state = self._health.parts().get("readings")
        # While the service is away waiting is right: the gateway has the room. A short quota does not pass by itself.
        is_short = waits_s > _SHORT_AFTER_S and state is not None and state.state in _GOES_ON
        return Hints(self._config.commands.idle_s, quota_used_up=is_short)

    def _service_now(self) -> float:
        now_s = self._service_clock.now()
        return self._clock.now().wall_s if now_s is None else now_s

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s


_BRING_THE_TIME: Final = frozenset({Offer.name, CommandRequests.name})
"""The kinds of request that come first after a start: their answers bring the service's time."""
_GOES_ON: Final = frozenset({"ok", "rate_limited"})


def _probe(thread: ServiceThread) -> Callable[[float], str | None]:
    def look(now_s: float) -> str | None:
        stuck_s = thread.stuck_for_s(now_s)
        return f"{thread.name} has made no progress for {stuck_s:.0f} s longer than it may" if stuck_s else None

    return look
