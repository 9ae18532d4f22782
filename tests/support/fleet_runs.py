"""A run of a fleet that never took place, second by second: a ramp, a storm, a fault, a gap, a lost reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from simulator.fleet.metrics import health
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.metrics.thresholds import judge_thresholds, parse
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import (
    AuditRecord,
    DeviceFinding,
    GeneratorHealth,
    Operations,
    RunRecord,
    Second,
    Span,
    StreamAudit,
    Tally,
    ThresholdResult,
    Verdict,
    VerdictStatus,
    WorkerGap,
)
from simulator.fleet.report.folder import RunFolder

SCENARIO: Final = """\
scenario: steady-10k          # every device polls and reports once a minute
seed: {seed}
target: {{base_url: "{target}", transport: http_poll, connections: 256}}
fleet:
  product: climate-node
  devices: {devices}
phases:
  - {{name: ramp, kind: ramp, duration_s: {ramp}}}
  - {{name: hold, kind: hold, duration_s: {hold}}}
  - {{name: storm, kind: hold, duration_s: {storm}}}
thresholds: ["http.sensor_data.p99 < 250ms over {window}", http.poll.failed.rate < 1%, "audit.lost == 0"]
"""
_SHARES: Final = {"http.poll": 0.55, "http.sensor_data": 0.4, "http.report": 0.05}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the run is like.

    Attributes:
        slower: factor on every time of an answer.
        rate_per_s: of all operations, in the hold.
        good: no fault, no gap, nothing lost, every threshold held.
    """

    duration_s: int = 240
    rate_per_s: int = 400
    devices: int = 10_000
    seed: int = 1
    slower: float = 1.0
    good: bool = False
    target: str = "http://127.0.0.1:8080"

    @property
    def phases(self) -> tuple[Span, ...]:
        ramp, hold = self.duration_s // 8, self.duration_s * 5 // 8
        ends = (0, ramp, ramp + hold, self.duration_s)
        phases = (("ramp", "ramp"), ("hold", "hold"), ("storm", "hold"))
        return tuple(Span(*phase, float(ends[at]), float(ends[at + 1])) for at, phase in enumerate(phases))

    @property
    def faults(self) -> tuple[Span, ...]:
        if self.good:
            return ()
        begin = float(self.duration_s * 2 // 5)
        end = begin + self.duration_s // 12
        half = self.devices // 2
        return (
            Span("half-gone", "disconnect_storm", begin, end, half, {"share": 0.5}),
            Span("slow-target", "link", end + 10, end + 20, self.devices, {"profile": "2g"}),
        )

    @property
    def gap(self) -> WorkerGap | None:
        begin = float(self.duration_s * 3 // 5)
        return None if self.good else WorkerGap(1, begin, begin + 4, "killed by signal 9; its devices were not moved")


def blank_record(**members: Any) -> RunRecord:
    """The record of a run of which nothing is known but these members."""
    empty: dict[str, Any] = {
        "name": "r", "kind": "devices", "seed": 1, "digest": "", "transport": "http_poll", "workers": 1, "devices": 1,
        "began_at": "", "machine": "", "version": "", "target": "", "verdict": Verdict(VerdictStatus.PASSED, 0),
        "phases": (),
    }  # fmt: skip
    return RunRecord(**empty | members)


def at_any_speed(patch: pytest.MonkeyPatch) -> None:
    """Let the generator never be the limit: how busy this machine is with other tests is not what is tested."""
    patch.setattr(health, "STRAINED_SHARE", 1.0)
    patch.setattr(health, "STOOD_STILL_S", float("inf"))


def seconds_of(shape: Shape) -> Iterator[Second]:
    """Its seconds. Those of the gap are missing."""
    random = np.random.Generator(np.random.PCG64(shape.seed))
    for second in range(shape.duration_s):
        if shape.gap and shape.gap.from_s <= second < shape.gap.to_s:
            continue
        yield _second(shape, second, random)


def run_of(shape: Shape, seconds: list[Second]) -> RunRecord:
    """The record of the run."""
    ramp, hold, storm = (int(phase.end_s - phase.begin_s) for phase in shape.phases)
    text = SCENARIO.format(
        window="20s" if shape.good else "1m",
        seed=shape.seed,
        target=shape.target,
        devices=shape.devices,
        ramp=ramp,
        hold=hold,
        storm=storm,
    )
    totals = Totals(seconds)
    sent = sum(second.health.sent for second in seconds)
    record = RunRecord(
        name="steady-10k",
        seed=shape.seed,
        digest=f"{shape.seed:08x}" * 8,
        kind="devices",
        transport="http_poll",
        workers=2,
        devices=shape.devices,
        began_at="2026-03-01T12:00:00Z",
        ended_at="2026-03-01T12:04:09Z",
        duration_s=float(shape.duration_s),
        machine="2 cores, 8 GB, Linux 6.1",
        version="0.8.0",
        target=shape.target,
        verdict=Verdict(VerdictStatus.PASSED, 0, ("every threshold held and every reading was read back",))
        if shape.good
        else Verdict(
            VerdictStatus.LOST,
            4,
            (
                "2 readings that were accepted are not there: see the audit",
                "2 of 3 thresholds did not hold",
                "worker 1 was killed at 2:24; its 4 s are missing",
            ),
        ),
        phases=shape.phases,
        faults=shape.faults,
        operations={**totals.operations, **({} if shape.good else _stages())},
        health=totals.health,
        thresholds=_thresholds(shape),
        audit=_audit(shape, sent),
        gaps=(shape.gap,) if shape.gap else (),
        scenario_text=text,
        extras={"backfill": {"batches": 2, "whole": True}},
    )
    # The folder of a good run fits together, as that of a real one does.
    wanted = [parse(result.expression) for result in record.thresholds]
    return replace(record, thresholds=judge_thresholds(wanted, record, seconds)) if shape.good else record


def a_run(shape: Shape = Shape()) -> tuple[RunRecord, list[Second]]:
    """A record and its seconds."""
    seconds = list(seconds_of(shape))
    return run_of(shape, seconds), seconds


def kept(folder: Path, record: RunRecord, seconds: Iterable[Second], *, ends: bool = True) -> Path:
    """The folder, which has the run as one leaves it that ends, or that is killed."""
    with RunFolder(folder) as run:
        run.keep(record)
        for second in seconds:
            run.append(second)
        if ends:
            run.finish(record)
    return folder


def _second(shape: Shape, second: int, random: np.random.Generator) -> Second:
    ramp, _, storm = shape.phases
    share = min(1.0, (second + 1) / ramp.end_s)
    rate = shape.rate_per_s * share * (2.0 if second >= storm.begin_s else 1.0)
    gone = any(f.kind == "disconnect_storm" and f.begin_s <= second < f.end_s for f in shape.faults)
    slow = any(f.kind == "link" and f.begin_s <= second < f.end_s for f in shape.faults)
    operations: dict[str, dict[OutcomeClass, Tally]] = {}
    for name, part in _SHARES.items():
        count = int(rate * part)
        lost = count // 2 if gone else 0
        limited = count // 6 if second >= storm.begin_s and name == "http.sensor_data" else 0
        factor = shape.slower * (30 if slow else 1.6 if second >= storm.begin_s else 1) * (1 + len(name) / 20)
        service = random.lognormal(-6.2, 0.5, count - lost - limited) * factor
        lag = random.exponential(0.0004, len(service)) * (8 if second >= storm.begin_s else 1)
        operations[name] = {OutcomeClass.OK: _tally(service, lag)}
        if limited:
            operations[name][OutcomeClass.LIMITED] = _tally(random.uniform(0.0005, 0.001, limited), 0.0001)
        if lost:
            operations[name][OutcomeClass.TRANSPORT] = _tally(random.uniform(0.001, 0.003, lost), 0.0001)
        if slow and name == "http.poll":
            operations[name][OutcomeClass.TIMEOUT] = _tally(np.full(3, 10.0), 0.0001)
    total = sum(tally.count for classes in operations.values() for tally in classes.values())
    online = shape.devices * share * (0.5 if gone else 1.0)
    gauges = {
        "online": float(int(online)),
        "connections": min(256.0, online),
        "waiting_readings": 4000.0 if gone else float(40 + second % 7),
        "open_commands": float(second % 12),
    }
    lag = Histogram()
    busy = 8 if second >= storm.begin_s else 1
    lag.record_many(random.exponential(0.0004, total) * busy)
    return Second(
        second,
        operations,
        gauges,
        GeneratorHealth(lag.percentile(99), lag.max_s, 0.003 * busy, 0.3, 40.0 + 4 * busy, total, total, lag.encode()),
    )


def _tally(service: np.ndarray, lag: np.ndarray | float) -> Tally:
    taken, waited = Histogram(), Histogram()
    taken.record_many(service)
    waited.record_many(service + lag)
    again = len(service) // 25
    return Tally(len(service), len(service) - again, waited.encode(), taken.encode(), again // 2)


def _thresholds(shape: Shape) -> tuple[ThresholdResult, ...]:
    return (
        ThresholdResult(
            "http.sensor_data.p99 < 250ms over 20s" if shape.good else "http.sensor_data.p99 < 250ms over 1m",
            held=True,
            observed=0.181,
            unit="s",
            at_s=140.0,
        ),
        ThresholdResult("http.poll.failed.rate < 1%", held=shape.good, observed=0.2 if shape.good else 4.7, unit="%"),
        ThresholdResult("audit.lost == 0", held=shape.good, observed=0.0 if shape.good else 2.0),
    )


def _audit(shape: Shape, sent: int) -> AuditRecord:
    lost = 0 if shape.good else 2
    findings = () if shape.good else (
        DeviceFinding("dev-004711", "sim-004711", "lost", 2, ("41", "42")),
        DeviceFinding("dev-000017", "sim-000017", "altered", 5, ("7",)),
    )  # fmt: skip
    return AuditRecord(
        StreamAudit(sent, sent - 40, sent - 40 - lost, lost, 0, 0 if shape.good else 5, 0, 0 if shape.good else 38, 12),
        StreamAudit(120, 120, 120, 0, 0, 0, 0),
        complete=True,
        sentences=() if shape.good else ("2 readings of 1 device were accepted and are not there",),
        findings=findings,
    )


def _stages() -> Operations:
    random = np.random.Generator(np.random.PCG64(7))
    found = {}
    for at, name in enumerate(("sent", "delivered", "started", "finished", "reported")):
        times = Histogram()
        times.record_many(random.lognormal(-5 + (2.5 if name == "delivered" else 0.3 * at), 0.6, 120))
        found[f"commands.{name}"] = {OutcomeClass.OK: Tally(120, 120, times.encode(), "")}
    return found
