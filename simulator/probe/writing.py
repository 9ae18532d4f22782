"""The look that writes: readings, two commands and a result for one test device; what can be removed is removed."""

from __future__ import annotations

import secrets

from agent.wire.probe.manners import probe_conventions
from agent.wire.probe.notes import Notes
from simulator.probe.readings import ReadingsProbe
from simulator.probe.sent_commands import CommandsProbe


def announce(device_id: str) -> tuple[str, ...]:
    """What :func:`write` is going to write, before it does."""
    return (
        f"up to 5 readings of device {device_id}, named probe_...: they stay, since no endpoint removes readings",
        f"2 commands for device {device_id} with command_payload {{'command': 'probe_...'}}, reported as rejected",
        "1 record in the runtime-data table for results, removed again",
    )


def write(notes: Notes, device_id: str, mark: str = "") -> None:
    """Write to a server, in the name of one test device, and note what becomes of it.

    Args:
        notes: of the look that came before.
        device_id: the test device; no other device is written to.
        mark: makes what is written unique, such as ``3f9c``; drawn when it is empty.
    """
    mark = mark or secrets.token_hex(4)
    server, here = notes.line.clock or (0.0, 0.0)
    now_s = notes.line.wall() + server - here
    readings = ReadingsProbe(notes, device_id, mark, now_s)
    readings.send()
    readings.read_back()
    CommandsProbe(notes, device_id, mark, now_s).send()
    probe_conventions(notes)
