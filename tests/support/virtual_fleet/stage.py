"""A scenario performed on virtual time as ``fleet-simulator run`` does it, and everything that can be seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

from agent.wire.secret import Secret
from agent.wire.server import ALL_EXTENSIONS, COMMAND_EVENTS
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.folder import read_seconds
from simulator.fleet.report.progress import RunView
from simulator.fleet.run.coordinator import Run as RunUnderWay
from simulator.fleet.run.lifecycle import perform_run
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.worker import Begin, Drain, EnterPhases, FromWorker, Sign, Stop, ToWorker, enter_phases
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.target import Target
from simulator.fleet.workload.base import Workload, WorkloadSummary
from simulator.keys import Keys
from tests.support.virtual_fleet.engines import Engines
from tests.support.virtual_fleet.service import BEFORE_S, Sent, Service
from tests.support.virtual_fleet.virtual_time import Time, VirtualLoop, virtual_time

OFFERS = ALL_EXTENSIONS - {COMMAND_EVENTS}


@dataclass
class Run:
    """What a run was.

    Attributes:
        sent: every request and message that service and broker were sent.
        record: of the run.
        seconds: of the record.
    """

    service: Service
    record: RunRecord
    seconds: list[Second]

    @cached_property
    def sent(self) -> list[Sent]:
        return [each for each in self.service.sent if each.at_s > BEFORE_S]

    def of(self, *operations: str) -> list[Sent]:
        """What was sent of some operations while the run lasted."""
        return [each for each in self.sent if each.operation in operations]

    @cached_property
    def batches(self) -> list[Sent]:
        """What was sent with readings."""
        return self.of("POST /sensor-data", "sensor-data")

    @cached_property
    def readings(self) -> list[tuple[float, int, dict[str, Any]]]:
        """Each reading with its device and the time at which it was sent."""
        return [(sent.at_s, sent.device, reading) for sent in self.batches for reading in sent.readings]

    @cached_property
    def orders(self) -> list[Sent]:
        return self.of("POST /commands/send")

    @cached_property
    def online(self) -> list[int]:
        """The gauge, second by second."""
        return [round(second.gauges.get("online", 0)) for second in self.seconds]

    def count(self, operation: str, outcome: str | None = None) -> int:
        """Exchanges of the record, of one outcome or of all."""
        tallies = self.record.operations.get(operation, {})
        return sum(tally.count for name, tally in tallies.items() if outcome in {None, str(name)})


@dataclass
class VirtualWorkers(LocalWorkers):
    """See :class:`~simulator.fleet.run.local_workers.LocalWorkers`: on one loop, whose time passes in receive()."""

    loop: VirtualLoop
    service: Service
    clock: Time
    members: dict[int, tuple[Workload, Recorder]] = field(default_factory=dict)
    said: list[tuple[int, FromWorker]] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def start(self, jobs: Sequence[Any]) -> None:
        async def make() -> None:
            for number, job in enumerate(jobs):
                recorder = Recorder()
                self.members[number] = job.make(recorder), recorder
                self.said.append((number, Sign.READY))

        self.loop.run_until_complete(make())

    def __exit__(self, *_error: object) -> None:
        for task in self.tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))

    @property
    def living(self) -> tuple[int, ...]:
        return tuple(self.members)

    def send(self, worker: int, message: ToWorker) -> None:
        play, recorder = self.members[worker]
        self.loop.run_until_complete(self._take(worker, play, recorder, message))

    def receive(self, timeout_s: float) -> Iterator[tuple[int, FromWorker]]:
        if not self.said:
            self.loop.run_until_complete(asyncio.sleep(timeout_s))
        said, self.said = self.said, []
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()  # an error in it is the test's
        for worker, message in said:
            if isinstance(message, WorkloadSummary):
                del self.members[worker]
            yield worker, message

    async def _take(self, number: int, play: Workload, recorder: Recorder, message: ToWorker) -> None:
        match message:
            case Begin(after_s):
                at_s = self.service.began_s = self.clock.now_s + after_s
                play.begin(at_s)
                self.tasks.append(asyncio.ensure_future(self._cut(number, play, recorder, at_s)))
            case EnterPhases():
                self.tasks.append(asyncio.ensure_future(enter_phases(play, message, self.service.began_s)))
            case Drain(from_s, until_s):
                from_s, until_s = self.service.began_s + from_s, self.service.began_s + until_s
                recorder.drain(from_s)
                self.tasks.append(asyncio.ensure_future(self._drain(number, play, from_s, until_s)))
            case Stop():
                summary = await play.close()
                second = max(0, int(self.clock.now_s - self.service.began_s))
                self.said += [(number, recorder.cut(second).measured()), (number, summary)]
                for task in self.tasks:
                    task.cancel()

    async def _cut(self, number: int, play: Workload, recorder: Recorder, began_s: float) -> None:
        second = 0
        while number in self.members:
            await asyncio.sleep(max(0.0, began_s + second + 1 - self.clock.now_s))
            if number in self.members:
                self.said.append((number, recorder.cut(second, play.gauges()).measured()))
            second += 1

    async def _drain(self, number: int, play: Workload, from_s: float, until_s: float) -> None:
        left = await play.drain(from_s, until_s)
        self.said.append((number, left))


def play(
    file: ScenarioFile,
    folder: Path,
    *,
    answers: Callable[[Sent], Any] = lambda _sent: None,
    view: RunView | None = None,
) -> Run:
    """Perform a scenario.

    Args:
        file: the scenario.
        folder: a new one, for the run and its secrets.
        answers: what the service answers otherwise; None for a request as usual.
        view: is told of the run while it goes on.
    """
    clock = Time()
    service = Service(clock, OFFERS, answers)
    engines = Engines(service)
    service.deliver = engines.deliver
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ends:
        ends.enter_context(virtual_time(clock))
        ends.enter_context(_patched(clock, service, engines))
        record = perform_run(file, _way(file, folder), folder / "run", [view or RunView()])
    return Run(service, record, list(read_seconds(folder / "run")))


@contextmanager
def _patched(clock: Time, service: Service, engines: Engines) -> Iterator[None]:
    loop = VirtualLoop(clock)

    def tokens(_config: Path, device_ids: Sequence[str]) -> dict[str, Secret]:
        return {device_id: Secret(f"token-of-{device_id}") for device_id in device_ids}

    patches = {
        "audit.ledger._WAITING_MAX": 10_000,  # virtual seconds are shorter than those of the disk
        "run.lifecycle.asyncio": SimpleNamespace(run=loop.run_until_complete),
        "run.lifecycle.LocalWorkers": lambda _work: VirtualWorkers(loop, service, clock),
        "run.lifecycle.Run": partial(RunUnderWay, now=clock.monotonic),
        "run.lifecycle.claimed_devices": lambda *_arguments: ExitStack(),
        "run.lifecycle.finish_run": lambda folder, record: folder.finish(record) or (),
        "run.preparing.find_offers": lambda _way, dialect: (
            service.offers if dialect.extensions is None else dialect.extensions
        ),
        "run.preparing.find_gateway_offers": lambda *_arguments: service.offers,
        "run.preparing.issue_tokens": tokens,
        "engine.pool.Http1Engine": engines.http,
        "workload.devices.Http1Engine": engines.http,
        "workload.devices.MqttSessions": engines.mqtt,
    }
    with ExitStack() as ends:
        for name, value in patches.items():
            ends.enter_context(patch(f"simulator.fleet.{name}", value))
        asyncio.set_event_loop(loop)
        try:
            yield
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            asyncio.set_event_loop(None)


def _way(file: ScenarioFile, folder: Path) -> Target:
    secret = folder / "secret_key"
    secret.write_text("msk_" + "0" * 32, encoding="utf-8")
    secret.chmod(0o600)
    keys = [("mk_only", secret)]
    if file.scenario.target.keys:
        keys = [(pair.api_key, file.folder / pair.secret_key_file) for pair in file.scenario.target.keys]
    pairs = tuple(Keys(name, Secret(path.read_text(encoding="utf-8")), path) for name, path in keys)
    url, authority = file.scenario.target.base_url, file.scenario.target.ca_file
    ca_file = None if authority is None else file.folder / authority
    if file.scenario.target.through == "gateway":
        config = folder / "gateway.yaml"
        config.touch()
        return Target(url, pairs, "http://127.0.0.1:8081", config, "mqtt://127.0.0.1:1883", ca_file=ca_file)
    return Target(url, pairs, ca_file=ca_file)
