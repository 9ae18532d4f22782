"""What a storm knows from outside, and what must be true of it.

=================  ====================================================================================================
commands sent      answered with 2xx by the service: each must end, and end as its effects say
commands seen      what an agent's journal held when it was dead: none may go from there or go back to an earlier state
effects            lines that handlers and programs wrote into a file of their own
readings seen      what an outbox held when its agent was dead: each must be stored by the service, once
readings stored    numbered by each process: a hole below the highest number of a process is a lost reading
=================  ====================================================================================================

``program`` is an executable whose script writes one line when it begins; the other handlers write one when they begin
and one when they have ended.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.wire.models import CommandRecord

Reading = tuple[str, int, int]
"""Sensor, process, number."""

ONCE: Final = frozenset({"only_once", "program"})
_WITH_EFFECTS: Final = ONCE | {"repeatable", "power_cycle"}

_ORDER: Final = {"received": 0, "started": 1, "finished": 2, "undeliverable": 2, "reported": 3}
# An idempotent handler that was interrupted as often as this is not started again.
_ATTEMPTS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What the store of a dead agent holds.

    Attributes:
        commands: id -> state.
        readings: what waits.
        incidents: what happened to the file, as the store itself wrote it down.
        damage: what SQLite's own check says, where it was asked; empty when it says ok.
    """

    commands: dict[str, str] = field(default_factory=dict)
    readings: frozenset[Reading] = frozenset()
    incidents: tuple[str, ...] = ()
    damage: str = ""

    @property
    def lives(self) -> set[int]:
        """When the processes began that the waiting readings are from, microseconds since the epoch."""
        return {life for _, life, _ in self.readings}


def look_at(store: Path, copy: Path, *, whole: bool = False) -> Look:
    """Look at a copy, so that the agent's own recovery is the first that touches the file.

    Args:
        store: the database of an agent that does not run, or whose answer may be a moment old.
        copy: a folder that is made anew for it.
        whole: have SQLite check all of it.
    """
    if not store.exists():
        return Look()
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for ending in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(store.with_name(store.name + ending), copy / (store.name + ending))
    with contextlib.closing(sqlite3.connect(copy / store.name)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "reading" not in tables:
            return Look()
        commands = dict(connection.execute("SELECT id, state FROM command"))
        bodies = connection.execute("SELECT body FROM reading").fetchall()
        incidents = tuple(row[0] for row in connection.execute("SELECT text FROM incident"))
        verdict = str(connection.execute("PRAGMA integrity_check").fetchone()[0]) if whole else "ok"
    readings = frozenset(reading for (body,) in bodies for reading in readings_of(json.loads(body)))
    return Look(commands, readings, incidents, "" if verdict == "ok" else verdict)


def readings_of(values: Mapping[str, float]) -> Iterable[Reading]:
    for name, value in values.items():
        if name.endswith("_life"):
            sensor = name.removesuffix("_life")
            yield sensor, int(value), int(values[f"{sensor}_number"])


@dataclass(slots=True)
class Seen:
    """Looks at one agent's store, one after the other.

    Attributes:
        commands: the furthest state that each command was seen in.
        readings: every reading that was ever seen waiting.
        faults: what went back or away between two looks.
    """

    commands: dict[str, str] = field(default_factory=dict)
    readings: set[Reading] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    incidents: set[str] = field(default_factory=set)

    def add(self, look: Look) -> None:
        """The next look."""
        for command_id, state in self.commands.items():
            now = look.commands.get(command_id)
            if now is None:
                self.faults.append(f"acknowledged command lost: {command_id} was {state} and is gone from the journal")
            elif _ORDER.get(now, 0) < _ORDER.get(state, 0):
                self.faults.append(f"acknowledged command lost: {command_id} was {state} and is {now} again")
        self.commands.update(look.commands)
        self.readings |= look.readings
        self.incidents.update(look.incidents)
        if look.damage:
            self.faults.append(f"the store is damaged: {look.damage}")


@dataclass(slots=True)
class Books:
    """What all devices of a storm amount to.

    Attributes:
        faults: one sentence for each thing that must not be; empty when all is well.
        lost_commands, run_twice, lost_readings, stored_twice: how many faults there are of these four kinds.
    """

    commands: int = 0
    effects: int = 0
    interrupted: int = 0
    readings: int = 0
    lost_commands: int = 0
    run_twice: int = 0
    lost_readings: int = 0
    stored_twice: int = 0
    faults: list[str] = field(default_factory=list)

    def add(
        self,
        *,
        sent: Mapping[str, str],
        records: Mapping[str, CommandRecord],
        effects: Mapping[str, list[dict[str, Any]]],
        seen: Seen,
        waiting: Iterable[Reading],
        stored: Counter[Reading],
        ended_by_itself: Iterable[int] = (),
    ) -> None:
        """Judge one device.

        Args:
            sent: id -> handler of the commands whose sending was answered.
            records: what the service says of each command now, by id.
            effects: id -> the lines that its handler wrote.
            seen: every look at its store, the last one included.
            waiting: what its outbox holds at the end.
            stored: reading -> how often the service holds it.
            ended_by_itself: exit codes of agents that nobody killed.
        """
        self.commands += len(records)
        self.effects += sum(len(lines) for lines in effects.values())
        self.readings += stored.total()
        self._judge_commands(sent, records, effects, seen)
        self._judge_readings(seen, set(waiting), stored)
        self.faults += [f"the agent ended by itself with {code}" for code in ended_by_itself]
        self.faults += [f"the store was replaced though only processes were killed: {text}" for text in seen.incidents]

    def _judge_commands(
        self,
        sent: Mapping[str, str],
        records: Mapping[str, CommandRecord],
        effects: Mapping[str, list[dict[str, Any]]],
        seen: Seen,
    ) -> None:
        lost = [fault for fault in seen.faults if "command lost" in fault]
        self.faults += seen.faults
        for command_id in sent.keys() - records.keys():
            lost.append(f"acknowledged command lost: the service took {command_id} and no longer knows it")
            self.faults.append(lost[-1])
        for command_id in effects.keys() - records.keys():
            self.faults.append(f"{command_id} ran and was never sent")
        for command_id, record in records.items():
            # A command whose sending had no answer may be there as well; the payload tells its handler.
            handler = str(record.command_payload.get("command"))
            self._judge_command(command_id, handler, record, effects.get(command_id, []), lost)
        self.lost_commands += len(lost)

    def _judge_command(
        self, command_id: str, handler: str, record: CommandRecord, lines: list[dict[str, Any]], lost: list[str]
    ) -> None:
        begun = sum(line.get("what", "begin") == "begin" for line in lines)
        ended = sum(line.get("what") in {"end", "after"} for line in lines)
        what = f"{handler} {command_id}"
        if handler in ONCE | {"power_cycle"} and begun > 1:
            self.run_twice += 1
            self.faults.append(f"ran twice: {what} began {begun} times")
        error = record.error or record.status_reason or ""
        if record.status == "succeeded":
            # A power cycle that was killed before its handler began is a power cycle all the same.
            shown = begun if handler == "program" else ended
            if not shown and handler in _WITH_EFFECTS:
                lost.append(f"acknowledged command lost: {what} succeeded without its effect")
                self.faults.append(lost[-1])
        elif record.status == "failed":
            self.interrupted += 1
            if not _may_fail(handler, begun, error):
                self.faults.append(f"{what} failed though nothing was wrong with it: {error}")
        else:
            lost.append(f"acknowledged command lost: {what} never ended, it is {record.status}")
            self.faults.append(lost[-1])

    def _judge_readings(self, seen: Seen, waiting: set[Reading], stored: Counter[Reading]) -> None:
        there = stored.keys() | waiting
        gone = [f"reading lost: {each} was in the outbox and is nowhere" for each in sorted(seen.readings - there)]
        numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
        for sensor, life, number in there:
            numbers[sensor, life].add(number)
        for (sensor, life), found in numbers.items():
            # They are committed in the order of reading, so a later one proves the earlier ones.
            holes = set(range(1, max(found) + 1)) - found
            gone += [f"reading lost: {(sensor, life, hole)} is a hole below {max(found)}" for hole in sorted(holes)]
        twice = [f"reading stored {times} times: {each}" for each, times in stored.items() if times > 1]
        self.lost_readings += len(gone)
        self.stored_twice += len(twice)
        self.faults += gone + twice


def _may_fail(handler: str, begun: int, error: str) -> bool:
    """Whether a kill explains this failure."""
    if handler in ONCE:
        # A restart_agent beside it ends a program in order, which is told as such.
        return "indeterminate" in error or (handler == "program" and error.startswith("stopped:"))
    if "too_many_attempts" in error:
        # Killed between the commit and the first line of the handler it began less often than it was started.
        return begun <= _ATTEMPTS_MAX
    return False


def read_effects(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Command id -> its lines; a line that a kill cut short is none."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                value = json.loads(line)
                found[str(value["command_id"])].append(value)
    return dict(found)
