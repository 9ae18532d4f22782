"""The proofs of a played demo, and the values of its report. Pure, but for reading the labels' files."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

from agent.wire.times import to_rfc3339
from simulator.demo.proofs import (
    ExpectedCommand,
    OutboxBalance,
    OutboxCounters,
    Proof,
    StoredCommand,
    cut_off,
    exit_code,
    prove_command_list,
    prove_command_states,
    prove_effects,
    prove_outbox_balance,
    prove_readings,
)
from simulator.demo.story import DemoOutcome
from simulator.fleet.audit.readings import DeviceReadings
from simulator.fleet.device.memory_ledger import DeviceLedger
from simulator.fleet.runner import DeviceIdentity
from simulator.report_parts.values import (
    Chart,
    Claim,
    CommandRow,
    DemoStory,
    DeviceCard,
    Event,
    Figure,
    Mark,
    Series,
)

_ANSWER_CHARACTERS: Final = 160
_OFF_S: Final = 30.0
"""A busy machine may take long from the sensor's program to the agent; no clock is ever this far off."""
_MACHINE_CHARTS: Final = (
    ("This machine, by the real agent", "%", ("cpu_used_percent", "memory_used_percent", "disk_used_percent"), 1),
    ("CPU temperature", "°C", ("cpu_temperature_c",), 1),
    ("Load of this machine", "", ("load_1m", "load_5m"), 2),
)
_FLEET_CHARTS: Final = (
    ("Temperature, virtual devices", "°C", "temperature_celsius", 2),
    ("Humidity, virtual devices", "%", "humidity_percent", 1),
)


def make_proofs(outcome: DemoOutcome) -> list[Proof]:
    """Every proof about this run, the most important ones first."""
    devices = outcome.onboarded.devices
    stored = [command for device in outcome.read_back.values() for command in device.commands]
    runs: Counter[str] = Counter(outcome.agent.runs())
    for ledger in outcome.fleet.ledgers.values():
        runs += ledger.effects
    expected = outcome.orders.sent
    virtual = [
        outcome.fleet.ledgers[device.device_id].readings(outcome.read_back[device.device_id].by_millisecond())
        for device in devices.virtual
    ]
    return [
        prove_command_states(expected, stored),
        prove_effects(expected, runs),
        prove_command_list(expected, stored),
        prove_readings("Each reading that a virtual device sent is stored exactly once", virtual),
        prove_readings(
            "Each reading of the agent's numbered sensor is stored exactly once", [_witness_readings(outcome)]
        ),
        prove_outbox_balance(_outbox_balance(outcome)),
        *outcome.proofs,
    ]


def _witness_readings(outcome: DemoOutcome) -> DeviceReadings:
    """The witness sensor's own file against the service.

    What was made in the moments before a process of the agent ended may not have been committed: it was not accepted,
    so it may be stored or not, but never twice or altered. What is missing while as many readings at least wait in the
    outbox may be among them: it is not lost. (A lost one that hides there is missing in the outbox's own balance.)
    """
    real = outcome.onboarded.devices.real
    witnessed = outcome.agent.witnessed()
    device = outcome.read_back[real.device_id]
    stored = device.by_sequence()
    made_s = {made.fact.key: made.at_s for made in witnessed}
    there = {fact.key for fact in stored}
    in_outbox = outcome.outbox.waiting if outcome.outbox else 0
    unsure: set[int] = set()
    for ended_s, next_s in outcome.ends[:-1] if in_outbox else outcome.ends:
        unsure |= cut_off(list(made_s.items()), there, ended_s=ended_s, restarted_s=next_s)
    missing = made_s.keys() - there - unsure
    return DeviceReadings(
        device=real.name,
        accepted=tuple(made.fact for made in witnessed),
        stored=stored,
        unsure=frozenset(unsure),
        waiting=frozenset(missing if len(missing) <= in_outbox else ()),
        misdated=sum(abs(at_s - made_s.get(key, at_s)) > _OFF_S for key, at_s in device.times_by_sequence()),
    )


def _outbox_balance(outcome: DemoOutcome) -> OutboxBalance:
    real = outcome.onboarded.devices.real
    outbox, stored = outcome.outbox or OutboxCounters(0, 0, 0, 0, 0), outcome.read_back[real.device_id].readings
    doubled = sum(row in stored[:number] for number, row in enumerate(stored))
    return OutboxBalance(**asdict(outbox), device=real.name, stored=len(stored), doubled=doubled)


def summary_document(
    outcome: DemoOutcome, proofs: Sequence[Proof], *, began_s: float, duration_s: float
) -> dict[str, Any]:
    """``proofs.json``: the verdict for machines."""
    return {
        "held": all(proof.held for proof in proofs),
        "exit_code": int(exit_code(proofs)),
        "began_at": to_rfc3339(began_s),
        "duration_s": round(duration_s, 3),
        "devices": len(outcome.onboarded.devices.all),
        "commands": len(outcome.orders.sent),
        "readings": sum(len(device.readings) for device in outcome.read_back.values()),
        "proofs": [asdict(proof) for proof in proofs],
    }


def virtual_log(ledgers: Iterable[DeviceLedger]) -> str:
    """The log of the virtual devices: a line with the counts of each, and its last failures below it."""
    lines = []
    for ledger in ledgers:
        counts = f"{ledger.requests} requests, {ledger.failures} failures, {ledger.accepted} readings accepted"
        lines.append(f"{ledger.name} {ledger.device_id}: {counts}")
        lines += [f"    {sentence}" for sentence in ledger.faults]
    return "\n".join([*lines, ""])


def demo_story(
    outcome: DemoOutcome,
    proofs: Sequence[Proof],
    *,
    events: Sequence[Event],
    marks: Sequence[Mark],
    began_s: float,
    duration_s: float,
) -> DemoStory:
    """Everything that the report shows.

    Args:
        outcome: what was played.
        proofs: the proofs.
        events: what was shown while it was played.
        marks: the instants to mark in pictures.
        began_s: when the story began, epoch seconds.
        duration_s: how long it took.
    """
    rows = _command_rows(outcome, began_s)
    devices = outcome.onboarded.devices
    return DemoStory(
        held=all(proof.held for proof in proofs),
        began_at=to_rfc3339(began_s),
        duration_s=duration_s,
        machine=f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        version=version("device-agent"),
        figures=_figures(outcome, rows, duration_s),
        claims=tuple(Claim(p.name, p.held, p.expected, p.found, p.details, p.inconclusive) for p in proofs),
        events=tuple(events),
        marks=tuple(marks),
        outages=tuple(outcome.outages),
        charts=tuple(_charts(outcome, began_s)),
        commands=rows,
        devices=tuple(_card(outcome, device, rows) for device in devices.all),
        files=(
            ("sheet.pdf", "all labels at true size, to print"),
            ("labels/", "each label as PNG and SVG"),
            ("proofs.json", "the verdict for machines"),
            ("logs/", "what the processes said"),
        ),
    )


def _figures(outcome: DemoOutcome, rows: Sequence[CommandRow], duration_s: float) -> tuple[Figure, ...]:
    devices = outcome.onboarded.devices
    quick = [row.total_s for row in rows if row.title == "ping" and row.total_s is not None]
    readings = sum(len(device.readings) for device in outcome.read_back.values())
    median = f"{statistics.median(quick) * 1000:.0f} ms" if quick else "none"
    ended = sum(1 for row in rows if row.as_expected)
    return (
        Figure(str(len(devices.all)), "devices", f"1 real process, {len(devices.virtual)} virtual"),
        Figure(str(len(rows)), "commands", f"{ended} ended as they had to"),
        Figure(f"{readings:,}", "readings", "stored by the service"),
        Figure(median, "ping, sent to result", f"median of {len(quick)}"),
        Figure(f"{duration_s:.1f} s", "from nothing to proven"),
    )


def _command_rows(outcome: DemoOutcome, began_s: float) -> tuple[CommandRow, ...]:
    stored = {c.id: c for device in outcome.read_back.values() for c in device.commands}
    rows = [_row(order, stored.get(order.id), began_s) for order in outcome.orders.sent]
    return tuple(
        sorted(rows, key=lambda row: (row.device != outcome.onboarded.devices.real.name, row.device, row.created_s))
    )


def _row(expected: ExpectedCommand, stored: StoredCommand | None, began_s: float) -> CommandRow:
    found = stored or StoredCommand(expected.id, expected.device_id, "not listed")

    def since(epoch_s: float | None) -> float | None:
        return None if epoch_s is None else max(0.0, epoch_s - began_s)

    answer = found.error or ("" if found.result is None else json.dumps(found.result, ensure_ascii=False))
    return CommandRow(
        device=expected.device,
        title=expected.title,
        payload=json.dumps(expected.payload, ensure_ascii=False),
        status=found.status,
        outcome=answer if len(answer) <= _ANSWER_CHARACTERS else answer[:_ANSWER_CHARACTERS] + "...",
        created_s=since(found.created_at) or 0.0,
        delivered_s=since(found.delivered_at),
        completed_s=since(found.completed_at),
        as_expected=prove_command_states([expected], [found]).held,
    )


def _charts(outcome: DemoOutcome, began_s: float) -> Iterable[Chart]:
    devices = outcome.onboarded.devices
    for title, unit, name, digits in _FLEET_CHARTS:
        lines = [_series(outcome, device, name, device.name, began_s) for device in devices.virtual]
        yield Chart(title, unit, tuple(line for line in lines if line.points), digits, crowd=True)
    for title, unit, names, digits in _MACHINE_CHARTS:
        lines = [_series(outcome, devices.real, name, name, began_s) for name in names]
        if any(line.points for line in lines):
            yield Chart(title, unit, tuple(line for line in lines if line.points), digits)


def _series(outcome: DemoOutcome, device: DeviceIdentity, name: str, label: str, began_s: float) -> Series:
    number: Callable[[object], bool] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)  # noqa: E731
    points = (
        (max(0.0, row.recorded_s - began_s), float(row.values[name]))
        for row in outcome.read_back[device.device_id].readings
        if number(row.values.get(name))
    )
    return Series(label, tuple(sorted(points)))


def _card(outcome: DemoOutcome, device: DeviceIdentity, rows: Sequence[CommandRow]) -> DeviceCard:
    devices = outcome.onboarded.devices
    picture = outcome.onboarded.pictures[device.device_id]
    labels = outcome.onboarded.labels.labels
    identifier = next(label.order.identifier for label in labels if label.png and label.png.name == picture.name)
    return DeviceCard(
        name=device.name,
        identifier=identifier,
        device_id=device.device_id,
        kind="real agent" if device == devices.real else "virtual",
        state="removed" if device == devices.removed else "registered",
        readings=len(outcome.read_back[device.device_id].readings),
        commands=sum(1 for row in rows if row.device == device.name),
        label_png=picture.read_bytes(),
    )
