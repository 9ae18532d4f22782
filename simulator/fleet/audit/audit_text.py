"""The audit in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from agent.wire.server import RECORDED_AT
from simulator.fleet.audit.judging import OFF_S, Sums
from simulator.fleet.audit.readback import ReadBack
from simulator.fleet.audit.run_database import AuditRules
from simulator.fleet.record import AuditRecord, DeviceFinding

_OF_READINGS: Final = {
    "ambiguous": "{:,} readings were sent and never answered for good: they may be stored or not",
    "doubled_by_resend": "{:,} readings are stored more than once since they were sent more than once: the service "
    "keeps no idempotency keys",
    "refused": "the service refused {:,} readings for good",
}
_OF_COMMANDS: Final = {
    "again": "{:,} effects began again after the power had gone, as their handlers' contract allows",
    "undelivered": "{:,} commands never came to their device: they expired, or still wait",
    "ambiguous": "{:,} commands were sent by an operator and got no answer, or one without an id: they may exist or "
    "not",
}
_OF_THE_SERVICE: Final = {
    "unaccounted": "{:,} readings came back that no ledger has; their worker's ledger is not whole",
    "dated_by_service": "{:,} readings came back with the service's time instead of their own: it does not keep "
    "recorded_at",
    "unordered": "{:,} readings came back without a time of arrival: their order cannot be judged",
}
"""Sums that are said where they are not 0."""


def audit_sentences(
    readings: Sums, commands: Sums | None, rules: AuditRules, read: ReadBack, unjudged: Iterable[str]
) -> Iterator[str]:
    """The audit in sentences, the most important first."""
    if read.failure is not None:
        yield (
            f"not everything could be read back: {len(read.readings_of):,} of {len(read.devices):,} devices, then "
            f"{read.failure}; repeat it with 'fleet-simulator audit'"
        )
    yield from unjudged
    counted = f"{readings['sent']:,} sent, {readings['accepted']:,} accepted, {readings['stored']:,} given back"
    yield f"readings: {counted}{_wrong(readings)}"
    yield from _said(_OF_READINGS, readings)
    if commands is not None:
        counted = f"{commands['sent']:,} sent, {commands['accepted']:,} accepted, {commands['stored']:,} listed"
        yield f"commands: {counted}, {commands['effects']:,} effects{_wrong(commands)}"
        yield from _said(_OF_COMMANDS, commands)
    if readings["sent"] and RECORDED_AT not in rules.offers and rules.time_name is None:
        yield "the service takes no recorded_at: readings are identified by number, and their times cannot be compared"
    if read.gone:
        names = ", ".join(device.name for device in list(read.gone.values())[:3])
        yield f"the service does not know {len(read.gone):,} devices any more ({names}): what they sent is lost"
    yield from _said(_OF_THE_SERVICE, readings)
    foreign = {"readings": read.foreign, "commands": 0 if commands is None else commands["foreign_ones"]}
    for what, count in foreign.items():
        if count:
            yield f"{count:,} {what} of other runs with the same devices were left out"


def time_sentences(sums: Sums, early_s: float, late_s: float) -> Iterator[str]:
    """How far the times that readings carry are off, where that is too far."""
    if sums["misdated"]:
        yield (
            f"{sums['misdated']:,} of {sums['sent']:,} readings carry a time that is more than {OFF_S:g} s away from "
            f"when they were made: up to {early_s:.1f} s too early, {late_s:.1f} s too late"
        )


def _said(sentences: Mapping[str, str], sums: Sums) -> Iterator[str]:
    return (sentence.format(sums[name]) for name, sentence in sentences.items() if sums[name])


def _wrong(sums: Sums) -> str:
    kinds = ("lost", "doubled", "altered", "unknown", "reordered", "late")
    return "".join(f", {sums[kind]:,} {kind}" for kind in kinds if sums[kind])


def lines_of(audit: AuditRecord) -> tuple[str, ...]:
    """The audit for a terminal: its sentences, then one line for each finding."""
    found = [
        f"  {each.kind:9} {each.count:>7,}  {each.name} ({each.device_id}): {_keys(each)}" for each in audit.findings
    ]
    return (*audit.sentences, *(["findings by device:", *found] if found else []))


def _keys(finding: DeviceFinding) -> str:
    return ", ".join(finding.keys) + (", ..." if finding.count > len(finding.keys) else "")
