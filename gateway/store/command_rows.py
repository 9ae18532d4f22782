"""Commands and their results as rows. Every method runs inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.core.values import JsonObject
from agent.wire.command_states import CommandStatus
from agent.wire.commands import CommandResult
from agent.wire.json_text import encode_json
from agent.wire.times import to_rfc3339
from gateway.ports import StoreFull, UnknownCommand
from gateway.store.totals import Counters, Usage
from gateway.store.values import ListRead, Reconciled, StoredCommand, StoredState, WaitingResult

FORGET_AFTER_S: Final = 7 * 86_400.0
"""A finished command is remembered for so long after the service has stopped listing it."""

HELD_MAX_S: Final = 30 * 86_400.0
"""A command that the service lists no longer is held for its device for so long, where a list is not the truth."""

OPEN_MAX: Final = 1_000
"""So many open commands are held for one device. Where the list is the truth, the others stay at the service until
there is room; else the oldest give way, since a list that never shrinks would leave no room for a new one."""

AGE_UNKNOWN: Final = "1970-01-01T00:00:00.000Z"
"""``listed_at`` of a command without a usable ``created_at`` on the first list of its device: it may be of any age."""

# The clock that a service dates its commands by may be so far ahead of the one in its Date.
_AHEAD_S: Final = 10.0

_OPEN: Final = StoredState.OPEN
_LOOKED: Final = "listed:"
_SELECT: Final = "SELECT device_id, id, record, created_at, expires_at, state FROM command"


STRANGERS_MAX: Final = 100
"""So many open commands has a device at most: what one gateway may not know of, because another fetched it."""
_STRANGERS: Final = (
    "SELECT count(*) FROM result LEFT JOIN command ON command.device_id = result.device_id AND"
    " command.id = result.command_id WHERE result.device_id = :device AND result.command_id != :id AND"
    " (command.id IS NULL OR json_extract(command.record, '$.command_payload') IS NULL)"
)


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

    def of_device(self, device_id: str, limit: int, max_bytes: int) -> list[tuple[str, float | None]]:
        """Records of a device as text, each with its command's end, newest first; how many and how long at most."""
        # The rows one by one: sorted with their records, those beyond the bounds would be read as well.
        seqs = self._db.execute(
            "SELECT seq FROM command WHERE device_id = ? ORDER BY seq DESC LIMIT ?", (device_id, limit)
        ).fetchall()
        found: list[tuple[str, float | None]] = []
        for seq in seqs:
            row = self._db.execute("SELECT record, expires_at FROM command WHERE seq = ?", seq).fetchone()
            max_bytes -= len(row[0])
            if found and max_bytes < 0:
                break
            found.append(row)
        return found

    def one(self, device_id: str, command_id: str) -> list[tuple[str, float | None]]:
        """The record of one command, as :meth:`of_device`; empty when it is not remembered."""
        return self._db.execute(
            "SELECT record, expires_at FROM command WHERE device_id = ? AND id = ?", (device_id, command_id)
        ).fetchall()

    def canceled_of(self, device_id: str, command_ids: Collection[str]) -> list[StoredCommand]:
        """Of these commands the ones that the service has canceled."""
        found = (
            self._db.execute(f"{_SELECT} WHERE device_id = ? AND id = ?", (device_id, id_)).fetchone()
            for id_ in command_ids
        )
        commands = [_command(row) for row in found if row is not None]
        return [command for command in commands if command.record.get("status") == CommandStatus.CANCELED]

    def take_listed(
        self, device_id: str, listed: Sequence[StoredCommand], now_s: float, look: ListRead, most_open: int = OPEN_MAX
    ) -> Reconciled:
        """Take a part of what the service lists for a device; results taken meanwhile stay.

        What is listed as final, as plain servers do for ever, is remembered and never open. A new command gets the time
        of the look into its record (``listed_at``), so that a device knows whether it was there before.

        Args:
            device_id: whose.
            listed: a part of the service's list.
            now_s: seconds since the epoch.
            look: when and what kind of list.
            most_open: a device has so many open commands here at most; what is above it stays at the service.
        """
        known = self._states(device_id, [command.id for command in listed])
        count = self._count_open(device_id)
        was_listed = self._was_listed_before(device_id) or not look.holds_history
        new: list[str] = []
        gone = left = 0
        for command in listed:
            state = known.get(command.id)
            if state is None:
                if command.is_open and look.is_truth and count >= most_open:
                    left += 1
                    continue
                self._insert(_dated(command, look, is_old=not was_listed), _state_of(command), now_s)
                known[command.id] = _state_of(command)
                new += [command.id] if command.is_open else []
                count += command.is_open
            elif state == _OPEN and not command.is_open:
                self._move(device_id, command.id, StoredState.GONE, now_s)
                self._write_record(device_id, command.id, command.record)
                gone += 1
            elif state == StoredState.GONE and command.is_open and look.is_truth:
                # Open again: the service was set back. Its list is the truth.
                self._move(device_id, command.id, _OPEN, now_s)
        self._counters.add("commands_fetched", len(new))
        self._counters.add("commands_gone", gone)
        dropped = self._drop_oldest(device_id, count - gone - most_open, now_s)
        return Reconciled(tuple(new), gone, tuple(self.open_of(device_id)), left, dropped)

    def finish_list(
        self,
        device_id: str,
        listed: Collection[str],
        now_s: float,
        canceled: Sequence[StoredCommand] = (),
        look: ListRead | None = None,
    ) -> int:
        """The whole list was read: what is open and not on it has ended, where the list is the truth about that.

        Else it stays until its device has ended it, it expires, or it was held for :data:`HELD_MAX_S`.

        Args:
            device_id: whose.
            listed: the ids on the list.
            now_s: seconds since the epoch.
            canceled: why some are no longer on it: as the service lists them, with that status.
            look: what kind of list.

        Returns:
            How many have ended.
        """
        is_truth = look is None or look.is_truth
        ended = {command.id: command for command in canceled}
        rows = self._db.execute(
            "SELECT id, changed_wall_s FROM command WHERE device_id = ? AND state = 'open'", (device_id,)
        ).fetchall()
        gone = [id_ for id_, since_s in rows if id_ not in listed and (is_truth or since_s < now_s - HELD_MAX_S)]
        for id_ in gone:
            self._move(device_id, id_, StoredState.GONE, now_s)
            if id_ in ended:
                self._write_record(device_id, id_, ended[id_].record)
        self._counters.add("commands_gone" if is_truth else "commands_given_up", len(gone))
        self._forget(device_id, listed, now_s)
        self._note_look(device_id)
        return len(gone)

    def admit(self, command: StoredCommand, now_s: float, at_s: float | None = None) -> Reconciled:
        """Add one command that the service sent on its own; known ones stay as they are.

        Args:
            command: it was sent just now.
            now_s: seconds since the epoch.
            at_s: the same on the service's clock; None when it is not known.
        """
        known = self._db.execute(
            "SELECT 1 FROM command WHERE device_id = ? AND id = ?", (command.device_id, command.id)
        ).fetchone()
        if known is None:
            self._insert(_dated(command, ListRead(at_s), is_old=False), _OPEN, now_s)
            self._counters.add("commands_pushed", 1)
        return Reconciled((command.id,) if known is None else (), 0, tuple(self.open_of(command.device_id)))

    def expire(self, service_now_s: float, now_s: float) -> list[str]:
        """Close what has expired by the service's clock; the devices that it was for."""
        rows = self._db.execute(
            "SELECT device_id, id FROM command WHERE state = 'open' AND expires_at < ?", (service_now_s,)
        ).fetchall()
        for device_id, id_ in rows:
            self._move(device_id, id_, StoredState.GONE, now_s)
        self._counters.add("commands_gone", len(rows))
        return sorted({device_id for device_id, _ in rows})

    def by_state(self) -> dict[str, int]:
        """How many commands are in each state."""
        return dict(self._db.execute("SELECT state, count(*) FROM command GROUP BY state ORDER BY state").fetchall())

    # --- results --------------------------------------------------------------------------------------------------

    def take_result(self, device_id: str, command_id: str, result: CommandResult, now_s: float) -> JsonObject:
        """Keep a device's word about a command; the record afterwards. The first final word counts.

        About a command that is not known here the service decides. Of one device at most
        :data:`STRANGERS_MAX` such results are kept at a time; once it did not know as many, no further one is taken.

        Raises:
            UnknownCommand: and it has decided that there is none, or that this device makes commands up.
            StoreFull: a bound is reached; nothing was kept.
        """
        row = self._db.execute(
            "SELECT state, record FROM command WHERE device_id = ? AND id = ?", (device_id, command_id)
        ).fetchone()
        is_final = result.status != "in_progress"
        if row is not None and row[0] == StoredState.UNKNOWN:
            raise UnknownCommand(f"the service has no command {command_id!r} for this device")
        if row is not None and (row[0] in {StoredState.CONCLUDED, StoredState.REPORTED}):
            return dict(json.loads(row[1]))
        if row is None:
            self._check_unknown_limits(device_id, command_id)
        record: JsonObject = json.loads(row[1]) if row is not None else {"id": command_id, "device_id": device_id}
        record["status"] = result.status
        if is_final:
            record |= {"result": result.result, "error": result.error, "completed_at": to_rfc3339(now_s)}
        state = StoredState.CONCLUDED if is_final else _OPEN if row is None else row[0]
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

    def _check_unknown_limits(self, device_id: str, command_id: str) -> None:
        (waiting,) = self._db.execute(_STRANGERS, {"device": device_id, "id": command_id}).fetchone()
        (refused,) = self._db.execute(
            "SELECT count(*) FROM command WHERE device_id = ? AND state = ?", (device_id, StoredState.UNKNOWN)
        ).fetchone()
        if refused >= STRANGERS_MAX:
            text = f"there is no command {command_id!r}: the service did not know {refused} others of this device"
            raise UnknownCommand(text)
        if waiting >= STRANGERS_MAX:
            text = f"{waiting} results of this device wait for the service, since their commands are not known here"
            raise StoreFull(text)

    def next_results(self, limit: int, but_not: Collection[int] = ()) -> list[WaitingResult]:
        """The next results to send to the service, oldest first."""
        rows = self._db.execute(
            "SELECT seq, device_id, command_id, status, result, error, finished_wall_s FROM result"
            " ORDER BY seq LIMIT ?",
            (limit + len(but_not),),
        )
        found = (
            WaitingResult(row[0], row[1], row[2], row[3], row[4] and json.loads(row[4]), row[5], row[6]) for row in rows
        )
        return [waiting for waiting in found if waiting.seq not in but_not][:limit]

    def result_settled(self, waiting: WaitingResult, refusal: str | None, state: StoredState, now_s: float) -> None:
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

    def _insert(self, command: StoredCommand, state: StoredState, now_s: float) -> None:
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

    def _move(self, device_id: str, command_id: str, state: StoredState, now_s: float) -> None:
        self._db.execute(
            "UPDATE command SET state = ?, changed_wall_s = ? WHERE device_id = ? AND id = ?",
            (state, now_s, device_id, command_id),
        )

    def _write_record(self, device_id: str, command_id: str, record: JsonObject) -> None:
        self._db.execute(
            "UPDATE command SET record = ? WHERE device_id = ? AND id = ?", (_text(record), device_id, command_id)
        )

    def _forget(self, device_id: str, listed: Collection[str], now_s: float) -> None:
        rows = self._db.execute(
            "SELECT id FROM command WHERE device_id = ? AND changed_wall_s < ? AND state IN (?, ?, ?)",
            (
                device_id,
                now_s - FORGET_AFTER_S,
                StoredState.REPORTED,
                StoredState.GONE,
                StoredState.UNKNOWN,
            ),
        ).fetchall()
        over = [(device_id, id_) for (id_,) in rows if id_ not in listed]
        self._db.executemany("DELETE FROM command WHERE device_id = ? AND id = ?", over)

    def _states(self, device_id: str, ids: Sequence[str]) -> dict[str, str]:
        """The states of those of these commands that are known."""
        sql = "SELECT state FROM command WHERE device_id = ? AND id = ?"
        found = ((id_, self._db.execute(sql, (device_id, id_)).fetchone()) for id_ in ids)
        return {id_: str(row[0]) for id_, row in found if row is not None}

    def _drop_oldest(self, device_id: str, count: int, now_s: float) -> int:
        if count <= 0:
            return 0
        rows = self._db.execute(
            "SELECT id FROM command WHERE device_id = ? AND state = 'open' ORDER BY created_at, seq LIMIT ?",
            (device_id, count),
        ).fetchall()
        for (id_,) in rows:
            self._move(device_id, id_, StoredState.GONE, now_s)
        self._counters.add("commands_given_up", len(rows))
        return len(rows)

    def _count_open(self, device_id: str) -> int:
        (count,) = self._db.execute(
            "SELECT count(*) FROM command WHERE device_id = ? AND state = 'open'", (device_id,)
        ).fetchone()
        return int(count)

    def _was_listed_before(self, device_id: str) -> bool:
        """A whole list of this device was read before."""
        name = f"{_LOOKED}{device_id}"
        return self._db.execute("SELECT 1 FROM setting WHERE name = ?", (name,)).fetchone() is not None

    def _note_look(self, device_id: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO setting VALUES (?, '1')", (f"{_LOOKED}{device_id}",))


def _state_of(command: StoredCommand) -> StoredState:
    return _OPEN if command.is_open else StoredState.GONE


def _is_comparable(created_at: float | None, look: ListRead) -> bool:
    """A command's time says how old it is; not one that is later than the service's own clock in ``Date``."""
    return created_at is not None and (look.until_s is None or created_at <= look.until_s + _AHEAD_S)


def _dated(command: StoredCommand, look: ListRead, *, is_old: bool) -> StoredCommand:
    """The command with the time of the look in its record; nothing is added to what is over."""
    if not command.is_open:
        return command
    if is_old and not _is_comparable(command.created_at, look):
        return replace(command, record={**command.record, "listed_at": AGE_UNKNOWN})
    at = None if look.at_s is None else to_rfc3339(look.at_s)
    return replace(command, record={**command.record, "listed_at": at})


def _command(row: Sequence[Any]) -> StoredCommand:
    return StoredCommand(row[0], row[1], json.loads(row[2]), row[3], row[4], row[5] == _OPEN)


def _text(value: object) -> str:
    return encode_json(value).decode()
