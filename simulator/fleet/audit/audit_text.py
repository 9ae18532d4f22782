"""The audit in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.wire.extensions import RECORDED_AT
from simulator.fleet.audit.judging import OFF_S, Sums
from simulator.fleet.audit.readback import ReadBack
from simulator.fleet.audit.run_database import AuditRules
from simulator.fleet.record import AuditRecord, DeviceFinding


def audit_sentences(
    readings: Sums, commands: Sums | None, rules: AuditRules, read: ReadBack, unjudged: Iterable[str]
) -> tuple[str, ...]:
    """The audit in sentences, the most important first."""
    failed: tuple[str, ...] = ()
    if read.failure is not None:
        failed = (
            f"not everything could be read back: {len(read.readings_of):,} of {len(read.devices):,} devices, then "
            f"{read.failure}; repeat it with 'fleet-simulator audit'",
        )
    return (*failed, *unjudged, *_readings(readings), *_commands(commands), *_notes(readings, commands, rules, read))


def _readings(sums: Sums) -> Iterator[str]:
    yield (
        f"readings: {sums['sent']:,} sent, {sums['accepted']:,} accepted, {sums['stored']:,} given back"
        + _wrong(lost=sums["lost"], doubled=sums["doubled"], altered=sums["altered"], unknown=sums["unknown"])
        + _wrong(reordered=sums["reordered"], late=sums["late"])
    )
    if sums["ambiguous"]:
        yield f"{sums['ambiguous']:,} readings were sent and never answered for good: they may be stored or not"
    if sums["doubled_by_resend"]:
        yield (
            f"{sums['doubled_by_resend']:,} readings are stored more than once since they were sent more than once: "
            "the service keeps no idempotency keys"
        )
    if sums["refused"]:
        yield f"the service refused {sums['refused']:,} readings for good"


def time_sentences(sums: Sums, early_s: float, late_s: float) -> Iterator[str]:
    """How far the times that readings carry are off, where that is too far."""
    if sums["misdated"]:
        yield (
            f"{sums['misdated']:,} of {sums['sent']:,} readings carry a time that is more than {OFF_S:g} s away from "
            f"when they were made: up to {early_s:.1f} s too early, {late_s:.1f} s too late"
        )


def _commands(sums: Sums | None) -> Iterator[str]:
    if sums is None:
        return
    yield (
        f"commands: {sums['sent']:,} sent, {sums['accepted']:,} accepted, {sums['stored']:,} listed, "
        f"{sums['effects']:,} effects"
        + _wrong(lost=sums["lost"], doubled=sums["doubled"], altered=sums["altered"], unknown=sums["unknown"])
        + _wrong(reordered=sums["reordered"], late=sums["late"])
    )
    if sums["again"]:
        yield f"{sums['again']:,} effects began again after the power had gone, as their handlers' contract allows"
    if sums["undelivered"]:
        yield f"{sums['undelivered']:,} commands never came to their device: they expired, or still wait"
    if sums["ambiguous"]:
        yield (
            f"{sums['ambiguous']:,} commands were sent by an operator and got no answer, or one without an id: they "
            "may exist or not"
        )


def _notes(sums: Sums, commands: Sums | None, rules: AuditRules, read: ReadBack) -> Iterator[str]:
    if sums["sent"] and RECORDED_AT not in rules.offers and rules.time_name is None:
        yield "the service takes no recorded_at: readings are identified by number, and their times cannot be compared"
    if read.gone:
        names = ", ".join(device.name for device in list(read.gone.values())[:3])
        yield f"the service does not know {len(read.gone):,} devices any more ({names}): what they sent is lost"
    if sums["unaccounted"]:
        yield f"{sums['unaccounted']:,} readings came back that no ledger has; their worker's ledger is not whole"
    if sums["dated_by_service"]:
        yield (
            f"{sums['dated_by_service']:,} readings came back with the service's time instead of their own: it does "
            "not keep recorded_at"
        )
    if sums["unordered"]:
        yield f"{sums['unordered']:,} readings came back without a time of arrival: their order cannot be judged"
    if read.foreign:
        yield f"{read.foreign:,} readings of other runs with the same devices were left out"
    if commands is not None and commands["foreign_ones"]:
        yield f"{commands['foreign_ones']:,} commands of other runs with the same devices were left out"


def _wrong(**counts: int) -> str:
    return "".join(f", {count:,} {kind}" for kind, count in counts.items() if count)


def lines_of(audit: AuditRecord) -> tuple[str, ...]:
    """The audit for a terminal: its sentences, then one line for each finding."""
    found = [
        f"  {each.kind:9} {each.count:>7,}  {each.name} ({each.device_id}): {_keys(each)}" for each in audit.findings
    ]
    return (*audit.sentences, *(["findings by device:", *found] if found else []))


def _keys(finding: DeviceFinding) -> str:
    return ", ".join(finding.keys) + (", ..." if finding.count > len(finding.keys) else "")
