"""What a server does with commands: how it lists them, for how long, and where their results go."""

from __future__ import annotations

from typing import Any, Final

from agent.wire import extensions, paths
from agent.wire.dialect import CommandLists, ResultPlace
from agent.wire.probe.commands import find_id_path, read_commands, record_of
from agent.wire.probe.line import Seen
from agent.wire.probe.listed import id_of
from agent.wire.probe.notes import Notes
from agent.wire.probe.shapes import time_form
from agent.wire.times import to_rfc3339
from simulator.probe.readings import seconds_of

_QUARTER_S: Final = 900.0
_AGREES_S: Final = 120.0
_ZONE_MAX_S: Final = 14 * 3_600.0
_LIST_LOSSES: Final = {
    CommandLists.EVERYTHING: "a command that was withdrawn on the server is not told from one that waits",
    CommandLists.ONCE: "a list whose answer is lost on the way takes its commands with it",
}


class CommandsProbe:
    """Sends two commands to one test device, and reports them as rejected.

    Args:
        notes: of the look that came before.
        device_id: the test device.
        mark: makes the commands' payload unique.
        now_s: the server's clock, epoch seconds.
    """

    def __init__(self, notes: Notes, device_id: str, mark: str, now_s: float) -> None:
        self._notes = notes
        self._line = notes.line
        self._device_id = device_id
        self._mark = mark
        self._now_s = now_s
        self._commands_path = paths.device_commands(device_id)

    def send(self) -> None:
        """Send two commands, list them, report them as rejected, and list them again."""
        notes = self._notes
        name = f"probe_{self._mark}"
        sent = [
            self._line.ask(
                "POST",
                paths.SEND_COMMAND,
                body={"device_id": self._device_id, "command_payload": {"command": name, "number": number}},
            )
            for number in (1, 2)
        ]
        rule = "POST /commands/send: Body: device_id, command_payload (object)."
        taken = notes.judge("takes_commands", rule, *((seen, seen.is_good) for seen in sent))
        if not taken:
            for choice in ("command_list", "command_id", "status_words", "created_at", "expires_at"):
                notes.unseen("commands", choice, "no command could be sent")
            return
        notes.wrote.append(f"2 commands for device {self._device_id} with the payload {{'command': '{name}'}}")
        answers = [self._line.get(self._commands_path) for _ in range(2)]
        lists = [self._ours(read_commands(notes, seen), name) for seen in answers]
        first, second = lists
        rule = "GET /devices/{deviceId}/commands: Commands of that device."
        seen = f"{len(first or ())} of 2 commands are listed" if first is not None else ""
        listed = notes.judge("lists_commands", rule, (answers[0], bool(first)), seen=seen)
        if not listed or not first:
            notes.left.append(f"2 commands {name}, which no list shows")
            return
        self._note_order(first)
        self._note_zone(first[0], answers[0])
        self._close(first, second or [])

    def _ours(self, items: list[dict[str, Any]] | None, name: str) -> list[dict[str, Any]] | None:
        return None if items is None else [item for item in items if name in str(item)]

    def _note_order(self, items: list[dict[str, Any]]) -> None:
        numbers = [record.command_payload.get("number") for item in items if (record := record_of(item, self._notes))]
        if sorted(map(str, numbers)) == ["1", "2"]:
            word = "oldest" if numbers[0] == 1 else "newest"
            self._notes.note("commands", "command_order", word, f"the {word} first")

    def _note_zone(self, item: dict[str, Any], seen: Seen) -> None:
        """Times without a zone, compared with the server's own Date."""
        created = item.get("created_at", item.get("createdAt"))
        now = seen.answer().server_time
        if created is None or time_form(created) != "naive" or now is None:
            return
        offset_s = round((seconds_of(created) - now) / _QUARTER_S) * _QUARTER_S
        if abs(seconds_of(created) - now - offset_s) > _AGREES_S or not 0 < abs(offset_s) <= _ZONE_MAX_S:
            return
        hours, rest = divmod(int(abs(offset_s)), 3600)
        zone = f"{'+' if offset_s > 0 else '-'}{hours:02d}:{rest // 60:02d}"
        self._notes.set("time_zone", zone, "the zone of times that name none, by the server's Date")
        self._notes.note("times", "time_zone", zone, f"times without a zone are {zone}")

    def _close(self, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
        """Report both commands as rejected, and see what becomes of the list."""
        notes = self._notes
        if not second:
            self._note_list(CommandLists.ONCE, "each command is on one list and never again")
        ids = [self._id_of(item, first) for item in first]
        done = self._report(ids[0])
        later: list[dict[str, Any]] | None = None
        if second and done:
            later = self._ours(read_commands(notes, self._line.get(self._commands_path)), f"probe_{self._mark}")
        if later is not None:
            still = {self._id_of(item, first) for item in later}
            if ids[0] in still:
                self._note_list(CommandLists.EVERYTHING, "commands that have ended stay on the list")
            elif len(still) == len(second) - 1:
                self._note_list(CommandLists.OPEN, "what has ended leaves the list")
        elif second:
            notes.unseen("commands", "command_list", "no command could be ended, which would show it")
        for other in ids[1:]:
            done = done and self._report(other)
        if not done:
            notes.left.append(f"the commands probe_{self._mark}, which stay open: this server takes no results")

    def _id_of(self, item: dict[str, Any], items: list[dict[str, Any]]) -> str:
        record = record_of(item, self._notes)
        if record is not None and record.id:
            return record.id
        path = find_id_path(items) or ()
        value: Any = item
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None or not path else str(value)

    def _note_list(self, lists: CommandLists, words: str) -> None:
        notes = self._notes
        loss = "" if notes.offers(extensions.COMMAND_STATUS) else _LIST_LOSSES.get(lists, "")
        notes.note("commands", "command_list", str(lists), words, loss)
        notes.found(lists=lists)
        # With the other two the agent does the same as with auto, which believes nothing.
        is_useful = lists is CommandLists.OPEN and not notes.offers(extensions.COMMAND_STATUS)
        if is_useful and notes.dialect.command_lists is None:
            notes.set("command_lists", str(lists), f"{words}, so that one that is missing was withdrawn")

    def _report(self, command_id: str) -> bool:
        """Whether the endpoint took a result; on the first command the table is tried too where it did not."""
        notes = self._notes
        if not command_id:
            self._try_table("derived", Seen("", fault="commands have no id"))
            return False
        body = {"status": "rejected", "error": "sent by a probe"}
        seen = self._line.ask("POST", paths.command_result(self._device_id, command_id), body=body)
        if notes.value("results") in {"table", "none"}:
            return seen.is_good
        if seen.is_good:
            notes.note("results", "results", "endpoint", f"results are taken at their commands ({seen.status})")
            if not notes.offers(extensions.COMMAND_RESULTS) and notes.dialect.results is None:
                notes.set("results", str(ResultPlace.ENDPOINT), "results are taken at their commands, unannounced")
            return True
        self._try_table(command_id, seen)
        return False

    def _try_table(self, command_id: str, endpoint: Seen) -> None:
        notes, table = self._notes, self._notes.dialect.results_table
        product_id = id_of(notes.device, ("product_id", "productId")) or next(iter(notes.products), "")
        without = f"no endpoint ({endpoint.status or endpoint.fault})"
        if not product_id:
            words = f"{without}; no product is known, so that the table was not tried"
            notes.unseen("results", "results", words)
            return
        moment = to_rfc3339(round(self._now_s))
        payload = {
            "command_id": command_id,
            "status": "rejected",
            "result": None,
            "error": "sent by a probe",
            "started_at": moment,
            "finished_at": moment,
        }
        body = {"product_id": product_id, "device_id": self._device_id, "table_name": table, "data_payload": payload}
        seen = self._line.ask("POST", paths.RUNTIME_DATA, body=body)
        if not seen.is_good:
            words = f"{without}, and table {table} takes none ({seen.brief()})"
            loss = "results of commands stay on the device: the server never learns how a command ended"
            notes.note("results", "results", "none", words, loss)
            notes.found(no_place=seen.brief())
            why = f"stops trying to report results; create the table {table} instead, to have them"
            notes.set("results", str(ResultPlace.NONE), why, only_if_wanted=True)
            return
        notes.note(
            "results",
            "results",
            "table",
            f"{without}; table {table} takes them",
        )
        notes.wrote.append(f"1 record in table {table} of product {product_id}")
        self._remove(seen, table)

    def _remove(self, made: Seen, table: str) -> None:
        value = made.json()
        inner = value.get("data", value.get("record", value)) if isinstance(value, dict) else None
        record_id = id_of(inner, ("id", "record_id", "_id"))
        removed = None
        if record_id:
            removed = self._line.ask("DELETE", paths.fill(paths.RUNTIME_RECORD, record_id=record_id))
        if removed is None or not removed.is_good:
            why = "its answer names no id" if removed is None else removed.brief()
            self._notes.left.append(f"1 record in table {table} ({why})")
