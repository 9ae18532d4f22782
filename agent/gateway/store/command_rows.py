"""Commands and their results as rows. Every method runs inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any, Final

from agent.core.values import JsonObject
from agent.gateway.ports import UnknownCommand
from agent.gateway.store.counter_rows import Counters
from agent.gateway.store.usage import Usage
from agent.gateway.store.values import CommandState, Reconciled, StoredCommand, WaitingResult
from agent.wire.commands import CommandResult, CommandStatus
from agent.wire.json_text import encode_json
from agent.wire.times import to_rfc3339

FORGET_AFTER_S: Final = 7 * 86_400.0
"""A finished command is remembered for so long after the service has stopped listing it."""

_OPEN: Final = CommandState.OPEN
_SELECT: Final = "SELECT device_id, id, record, created_at, expires_at, state FROM command"


class CommandRows:
    """The journal of the devices' commands.

    Args:
        connection: of the store.
        counters: where what happens is counted.
        usage: how much waits and may wait.
    """

    def __init__(self, connection: sqlite3.Connection, counters: Counters, usage: Usage) -> None:
        self._db = connection
        self._counters = counters
        self._usage = usage

    def open_ones(self) -> list[StoredCommand]:
        """Every open command of every device, oldest first."""
        rows = self._db.execute(f"{_SELECT} WHERE state = 'open' ORDER BY seq")
        return [_command(row) for row in rows]

    def of_device(self, device_id: str, limit: int) -> list[StoredCommand]:
        """Every command of a device that is remembered, newest first."""
        rows = self._db.execute(f"{_SELECT} WHERE device_id = ? ORDER BY seq DESC LIMIT ?", (device_id, limit))
        return [_command(row) for row in rows]

    def canceled_of(self, device_id: str, command_ids: Collection[str]) -> list[StoredCommand]:
        """Those of these commands that the service has canceled."""
        found = (
            self._db.execute(f"{_SELECT} WHERE device_id = ? AND id = ?", (device_id, id_)).fetchone()
            for id_ in command_ids
        )
        commands = [_command(row) for row in found if row is not None]
        return [command for command in commands if command.record.get("status") == CommandStatus.CANCELED]

    def reconcile(
        self, device_id: str, listed: Sequence[StoredCommand], now_s: float, canceled: Sequence[StoredCommand] = ()
    ) -> Reconciled:
        """Take what the service lists for a device as the truth about what is open; results taken meanwhile stay.

        What is listed as final, as plain servers do for ever, is remembered and never open.

        Args:
            device_id: whose.
            listed: the service's list.
            now_s: epoch seconds.
            canceled: why some are no longer on it: as the service tells them, with that status.
        """
        known = dict(self._db.execute("SELECT id, state FROM command WHERE device_id = ?", (device_id,)).fetchall())
        new = [command for command in listed if command.id not in known]
        for command in new:
            state = _OPEN if command.is_open else CommandState.GONE
            self._insert(command, state, now_s)
        ended = {command.id: command for command in (*listed, *canceled) if not command.is_open}
        finished = {command.id for command in listed if not command.is_open}
        wanted = {command.id for command in listed if command.is_open}
        gone = [id_ for id_, state in known.items() if state == _OPEN and (id_ in finished or id_ not in wanted)]
        for id_ in gone:
            self._move(device_id, id_, CommandState.GONE, now_s)
            if id_ in ended:
                self._write_record(device_id, id_, ended[id_].record)
        # Open again: the service was set back, or another gateway's word came late. Its list is the truth.
        for id_ in wanted:
            if known.get(id_) == CommandState.GONE:
                self._move(device_id, id_, _OPEN, now_s)
        self._forget(device_id, known, wanted | finished, now_s)
        self._counters.add("commands_fetched", len(new))
        self._counters.add("commands_gone", len(gone))
        return Reconciled(
            tuple(command.id for command in new if command.is_open), len(gone), tuple(self.open_of(device_id))
        )

    def admit(self, command: StoredCommand, now_s: float) -> Reconciled:
        """Add one command that the service told on its own; known ones stay as they are."""
        known = self._db.execute(
            "SELECT 1 FROM command WHERE device_id = ? AND id = ?", (command.device_id, command.id)
        ).fetchone()
        if known is None:
            self._insert(command, _OPEN, now_s)
            self._counters.add("commands_pushed", 1)
        return Reconciled((command.id,) if known is None else (), 0, tuple(self.open_of(command.device_id)))

    def expire(self, service_now_s: float, now_s: float) -> list[str]:
        """Close what has expired by the service's clock; the devices that it was for."""
        rows = self._db.execute(
            "SELECT device_id, id FROM command WHERE state = 'open' AND expires_at < ?", (service_now_s,)
        ).fetchall()
        for device_id, id_ in rows:
            self._move(device_id, id_, CommandState.GONE, now_s)
        self._counters.add("commands_gone", len(rows))
        return sorted({device_id for device_id, _ in rows})

    def count_delivery(self, device_id: str, ids: Sequence[str]) -> None:
        """These were handed to the device."""
        self._db.executemany(
            "UPDATE command SET deliveries = deliveries + 1 WHERE device_id = ? AND id = ?",
            [(device_id, id_) for id_ in ids],
        )
        self._counters.add("commands_delivered", len(ids))

    def by_state(self) -> dict[str, int]:
        """How many commands are in each state."""
        return dict(self._db.execute("SELECT state, count(*) FROM command GROUP BY state ORDER BY state").fetchall())

    # --- results --------------------------------------------------------------------------------------------------

    def take_result(self, device_id: str, command_id: str, result: CommandResult, now_s: float) -> JsonObject:
        """Keep a device's word about a command; the record afterwards. The first final word counts.

        A command that is not known here may be another gateway's: the service decides about it.

        Raises:
            UnknownCommand: and it has decided that there is none.
            DeskFull: a bound is reached; nothing was kept.
        """
        row = self._db.execute(
            "SELECT state, record FROM command WHERE device_id = ? AND id = ?", (device_id, command_id)
        ).fetchone()
        is_final = result.status != "in_progress"
        if row is not None and row[0] == CommandState.UNKNOWN:
            raise UnknownCommand(f"the service has no command {command_id!r} for this device")
        if row is not None and (row[0] in {CommandState.CONCLUDED, CommandState.REPORTED}):
            return dict(json.loads(row[1]))
        record: JsonObject = json.loads(row[1]) if row is not None else {"id": command_id, "device_id": device_id}
        record["status"] = result.status
        if is_final:
            record |= {"result": result.result, "error": result.error, "completed_at": to_rfc3339(now_s)}
        state = CommandState.CONCLUDED if is_final else _OPEN if row is None else row[0]
        text = _text(record)
        if row is not None:
            self._db.execute(
                "UPDATE command SET state = ?, record = ?, changed_wall_s = ? WHERE device_id = ? AND id = ?",
                (state, text, now_s, device_id, command_id),
            )
        elif is_final:
            self._insert(StoredCommand(device_id, command_id, record), state, now_s)
        self._put_result(device_id, command_id, result, now_s)
        self._counters.add("results_taken", 1)
        return record

    def next_results(self, limit: int, but_not: Collection[int] = ()) -> list[WaitingResult]:
        """What to tell the service next, oldest first."""
        rows = self._db.execute(
            "SELECT seq, device_id, command_id, status, result, error, finished_wall_s FROM result"
            " ORDER BY seq LIMIT ?",
            (limit + len(but_not),),
        )
        found = (
            WaitingResult(row[0], row[1], row[2], row[3], row[4] and json.loads(row[4]), row[5], row[6]) for row in rows
        )
        return [waiting for waiting in found if waiting.seq not in but_not][:limit]

    def result_settled(self, waiting: WaitingResult, refusal: str | None, state: CommandState, now_s: float) -> None:
        """The service has it, or never will: then it is set aside with the reason.

        Args:
            waiting: the result.
            refusal: why the service will never take it; None when it has it.
            state: of the command from now on.
            now_s: epoch seconds.
        """
        if refusal is not None:
            body = _text(
                {
                    "command_id": waiting.command_id,
                    "status": waiting.status,
                    "result": waiting.result,
                    "error": waiting.error,
                }
            )
            self._db.execute(
                "INSERT INTO set_aside (kind, device_id, body, reason, wall_s) VALUES ('result', ?, ?, ?, ?)",
                (waiting.device_id, body, refusal, now_s),
            )
        self._counters.add("results_refused" if refusal else "results_reported", 1)
        self._remove_result("seq = ?", waiting.seq)
        if waiting.status != "in_progress":
            self._move(waiting.device_id, waiting.command_id, state, now_s)

    # --- inside ---------------------------------------------------------------------------------------------------

    def open_of(self, device_id: str) -> list[StoredCommand]:
        """A device's open commands, oldest first."""
        rows = self._db.execute(
            f"{_SELECT} WHERE device_id = ? AND state = 'open' ORDER BY created_at, seq",
            (device_id,),
        )
        return [_command(row) for row in rows]

    def _put_result(self, device_id: str, command_id: str, result: CommandResult, now_s: float) -> None:
        """In the place of an earlier word about the same command."""
        text = None if result.result is None else _text(result.result)
        size = len(text or "") + len(result.error or "")
        self._remove_result("device_id = ? AND command_id = ?", device_id, command_id)
        self._usage.make_room(results=1, size_bytes=size)
        self._db.execute(
            "INSERT INTO result (device_id, command_id, status, result, error, finished_wall_s, size_bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (device_id, command_id, result.status, text, result.error, now_s, size),
        )

    def _remove_result(self, which: str, *values: object) -> None:
        row = self._db.execute(f"SELECT seq, size_bytes FROM result WHERE {which}", values).fetchone()  # noqa: S608
        if row is not None:
            self._db.execute("DELETE FROM result WHERE seq = ?", (row[0],))
            self._usage.free(results=1, size_bytes=row[1])

    def _insert(self, command: StoredCommand, state: CommandState, now_s: float) -> None:
        self._db.execute(
            "INSERT INTO command (device_id, id, state, record, created_at, expires_at, changed_wall_s)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                command.device_id,
                command.id,
                state,
                _text(command.record),
                command.created_at,
                command.expires_at,
                now_s,
            ),
        )

    def _move(self, device_id: str, command_id: str, state: CommandState, now_s: float) -> None:
        self._db.execute(
            "UPDATE command SET state = ?, changed_wall_s = ? WHERE device_id = ? AND id = ?",
            (state, now_s, device_id, command_id),
        )

    def _write_record(self, device_id: str, command_id: str, record: JsonObject) -> None:
        self._db.execute(
            "UPDATE command SET record = ? WHERE device_id = ? AND id = ?", (_text(record), device_id, command_id)
        )

    def _forget(self, device_id: str, known: dict[str, str], listed: Collection[str], now_s: float) -> None:
        finished = {CommandState.REPORTED, CommandState.GONE, CommandState.UNKNOWN}
        over = [
            (device_id, id_, now_s - FORGET_AFTER_S)
            for id_, state in known.items()
            if id_ not in listed and state in finished
        ]
        self._db.executemany("DELETE FROM command WHERE device_id = ? AND id = ? AND changed_wall_s < ?", over)


def _command(row: Sequence[Any]) -> StoredCommand:
    return StoredCommand(row[0], row[1], json.loads(row[2]), row[3], row[4], row[5] == _OPEN)


def _text(value: object) -> str:
    return encode_json(value).decode()
