"""Commands that came for a virtual device: the core decides, the journal commits, the lane queues."""

from __future__ import annotations

from agent.core.commands import OPEN_STATES
from agent.core.triage import TriageVerdict, triage
from agent.core.values import CommandPoll, JournalEntry, Moment
from simulator.fleet.device.runtime import DeviceRuntime


def take_in(body: DeviceRuntime, poll: CommandPoll, now: Moment) -> bool:
    """Decide on commands, commit, queue; whether they brought something new.

    What is over is forgotten when a list comes without it. Pushed commands are no list: they say nothing about others.
    """
    journal = body.disk.journal
    ids = [command.id for command in poll.commands]
    decided = triage(
        poll.commands,
        journal.known(ids),
        body.model.rules,
        received=now,
        service_now_s=body.time.at(now),
        first_contact=journal.is_empty,
    )
    journal.admit(decided.entries)
    if not poll.pushed:
        journal.forget(ids)
    for entry in decided.entries:
        _note(body, entry, now)
    admitted = [decision.entry for decision in decided.of(TriageVerdict.ADMIT) if decision.entry is not None]
    if admitted:
        lanes = body.need_lanes()
        for entry in admitted:
            lanes.queue(entry)
    return bool(decided.entries)


def _note(body: DeviceRuntime, entry: JournalEntry, now: Moment) -> None:
    """Count a new entry and write it down for the audit."""
    if entry.state not in OPEN_STATES:
        return
    body.fleet.gauges.open_commands += 1
    body.fleet.ledger.command_received(body.index, entry.command.id, body.run_s(now))
    if entry.outcome is not None:
        outcome = entry.outcome
        body.fleet.ledger.command_finished(body.index, entry.command.id, outcome.status, body.run_s(now), outcome.error)
