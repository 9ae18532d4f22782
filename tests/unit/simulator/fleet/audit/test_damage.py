"""Every kind of damage to a fleet's run is found, with the exit code that fits and in words; a copy without is good."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.errors import ConfigurationError, TransportError
from agent.wire.encoding import parse_time, to_rfc3339
from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.run_audit import audit_run, audit_text, exit_code_of_audit
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.target.client import Keyring, TargetClient
from simulator.keys import Keys
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, merged
from tests.support.virtual_fleet.stage import OFFERS, Run

GOOD, LOST, INCONCLUSIVE = ExitCode.GOOD, ExitCode.DATA_LOST, ExitCode.INCONCLUSIVE
SIGNALS = {
    "temperature_celsius": {"kind": "random_walk", "start": 21, "step": 0.1, "digits": 6},
    "humidity_percent": {"kind": "random_walk", "start": 40, "step": 0.5},
}
Row = dict[str, Any]


@dataclass
class Answer:
    """One page of a list on its way to the audit.

    Attributes:
        name: of the device that was asked for.
        more: what it says of a next page.
        body: in place of the JSON of all that; None of it breaks the connection.
    """

    name: str
    is_first: bool
    rows: list[Row]
    more: Row
    status: int = 200
    body: bytes | None = b""


@dataclass
class Case:
    """A copy of the run, and of what its service stored, to be damaged; it is what the audit asks.

    Attributes:
        folder: the copy of the run's folder.
        page: so many rows in each page; 0: all of them.
        change: damages the answers of the list of readings, or of commands.
    """

    folder: Path
    readings: list[Row]
    commands: list[Row]
    devices: set[str]
    page: int = 0
    change: dict[str, Callable[[Answer], object]] = field(default_factory=dict)
    base_url = "http://service.example"

    async def request(self, _method: str, target: str, **_: Any) -> HttpAnswer:
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        is_readings = parts.path == "/sensor-data"
        name = query.get("device_id", "") if is_readings else parts.path.split("/")[2]
        rows = [row for row in (self.readings if is_readings else self.commands) if name in {"", row["device_id"]}]
        first = int(query.get("cursor", 0))
        last = first + self.page if self.page else len(rows)
        more = {"next_cursor": str(last), "has_more": True} if last < len(rows) else {"has_more": False}
        answer = Answer(name, not first, copy.deepcopy(rows[first:last]), more)
        if name and name not in self.devices:
            answer.status, answer.body = 404, b'{"error":"device_not_found"}'
        self.change.get("readings" if is_readings else "commands", lambda _answer: None)(answer)
        if answer.body is None:
            raise TransportError("the connection broke in the body")
        return HttpAnswer(answer.status, [], answer.body or json.dumps({"data": answer.rows, **answer.more}).encode())

    def audit(self) -> tuple[ExitCode, str]:
        """The exit code, and all that is said."""

        async def at_once(_wait_s: float) -> None:
            pass

        client = TargetClient(self, Keyring([Keys("mk_a", Secret("msk_a"))]), OFFERS, sleep=at_once)  # type: ignore[arg-type]
        audit = asyncio.run(audit_run(self.folder, client.pages, lambda *_: None))
        return exit_code_of_audit(audit), audit_text(audit)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run that passed, on virtual time."""
    look = Looker(tmp_path_factory.mktemp("recorded"))(
        merged(
            CONTEXTS["core-poll"],
            {
                "workers": 2,
                "fleet": {"models": [{"signals": SIGNALS, "telemetry": {"every_s": 1}}]},
                "commands": [{"payload": {"command": "ping"}, "rate_per_s": 2}],
            },
        )
    )
    assert look.run.record.verdict.exit_code == 0, look.run.record.verdict
    return look.folder / "run", look.run


@pytest.fixture
def case(recorded: tuple[Path, Run], tmp_path: Path) -> Case:
    folder, run = recorded
    shutil.copytree(folder, tmp_path / "run")
    stored = copy.deepcopy((run.service.stored, list(run.service.commands.values())))
    return Case(tmp_path / "run", *stored, devices=set(run.service.devices))


def test_an_undamaged_copy_is_good(case):
    for case.page in (0, 2):
        code, said = case.audit()
        assert code == GOOD, said
        assert re.search(r"readings: (\d+) sent, \1 accepted, \1 given back\ncommands: (\d+) sent, \2", said), said


# --- what is stored ---------------------------------------------------------------------------------------------------


def of_one_device(case: Case) -> list[Row]:
    return [row for row in case.readings if row["device_id"] == case.readings[0]["device_id"]]


def exchange(case: Case, *names: str, keeps: str = "") -> None:
    """Exchange members of two readings of one device, but for one value that each keeps."""
    one, other = of_one_device(case)[:2]
    for name in names:
        one[name], other[name] = other[name], one[name]
    if keeps:
        values = one["sensor_data"], other["sensor_data"]
        values[0][keeps], values[1][keeps] = values[1][keeps], values[0][keeps]


def reading(change: Callable[[Row], object]) -> Callable[[Case], object]:
    """Change one stored reading."""
    return lambda case: change(case.readings[3])


def values(change: Callable[[Row], object]) -> Callable[[Case], object]:
    """Change the values of one stored reading."""
    return lambda case: change(case.readings[3]["sensor_data"])


def command(**changed: Any) -> Callable[[Case], object]:
    """Change one stored command."""
    return lambda case: case.commands[2].update(changed)


def another_device(case: Case, row: Row) -> str:
    return min(case.devices - {row["device_id"]})


def later(by_s: float) -> Callable[[Row], object]:
    return lambda row: row.update(recorded_at=to_rfc3339(parse_time(row["recorded_at"]) + by_s))


def add(row: Row, **more: Any) -> Row:
    return {**copy.deepcopy(row), **more}


STORED: dict[str, tuple[Callable[[Case], object], str]] = {
    "reading deleted": (lambda case: case.readings.pop(3), "1 lost"),
    "all of a device deleted": (
        lambda case: [case.readings.remove(row) for row in of_one_device(case)],
        " lost",
    ),
    "all readings deleted": (lambda case: case.readings.clear(), "0 given back, "),
    "stored twice": (lambda case: case.readings.append(add(case.readings[3])), "1 doubled"),
    "stored twice, with another value": (
        lambda case: case.readings.append(
            add(case.readings[3], sensor_data={**case.readings[3]["sensor_data"], "x": 1})
        ),
        "1 doubled, 1 altered",
    ),
    "a value off by a millionth": (
        values(lambda row: row.update(temperature_celsius=row["temperature_celsius"] * 1.000001)),
        "1 altered",
    ),
    "a value gone": (values(lambda row: row.pop("humidity_percent")), "1 altered"),
    "two values exchanged in one": (
        values(
            lambda row: row.update(
                temperature_celsius=row["humidity_percent"], humidity_percent=row["temperature_celsius"]
            )
        ),
        "1 altered",
    ),
    "the values of two exchanged": (lambda case: exchange(case, "sensor_data", keeps="fleet_sequence"), "2 altered"),
    "a number that was never sent": (
        values(lambda row: row.update(fleet_sequence=row["fleet_sequence"] + 1000)),
        "1 lost, 1 unknown",
    ),
    "the number gone": (values(lambda row: row.pop("fleet_sequence")), "1 lost, 1 unknown"),
    "the number of another run": (
        values(lambda row: row.update(fleet_sequence=row["fleet_sequence"] + 2**40)),
        "1 readings of other runs",
    ),
    "a number as a text": (values(lambda row: row.update(humidity_percent=str(row["humidity_percent"]))), "1 altered"),
    "dated 2 ms later": (reading(later(0.002)), "1 altered"),
    "dated a day earlier": (reading(later(-86_400)), "1 lost"),
    "the times of two exchanged": (lambda case: exchange(case, "recorded_at"), "2 altered"),
    "under another device of the run": (
        lambda case: case.readings[3].update(device_id=another_device(case, case.readings[3])),
        "1 lost",
    ),
    "one that nobody sent": (
        lambda case: case.readings.append(
            add(
                case.readings[3],
                sensor_data={
                    **case.readings[3]["sensor_data"],
                    "fleet_sequence": case.readings[3]["sensor_data"]["fleet_sequence"] + 500,
                },
            )
        ),
        "1 unknown",
    ),
    "command deleted": (lambda case: case.commands.pop(2), "1 lost"),
    "command stored twice": (lambda case: case.commands.append(add(case.commands[2], id="other")), "1 unknown"),
    "succeeded, stored as failed": (command(status="failed"), "1 altered"),
    "succeeded, stored as queued": (command(status="queued"), "1 lost"),
    "succeeded, stored as expired": (command(status="expired"), "1 lost"),
    "another payload": (command(command_payload={"command": "pong"}), "1 altered"),
    "another result": (command(result={"pong": "altered"}), "1 altered"),
    "command under another device": (
        lambda case: case.commands[2].update(device_id=another_device(case, case.commands[2])),
        "1 lost",
    ),
    "command under another id": (command(id="other"), "1 lost, 1 unknown"),
    "device removed": (lambda case: case.devices.remove(case.readings[0]["device_id"]), "does not know 1 devices"),
}


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_otherwise_is_lost_doubled_altered_or_unknown(case, name):
    plant, words = STORED[name]
    plant(case)
    code, said = case.audit()
    assert (code, words in said) == (LOST, True), said


# --- what is given back -----------------------------------------------------------------------------------------------


def rows(change: Callable[[list[Row]], object]) -> Callable[[Answer], object]:
    """Change the rows of each page."""
    return lambda answer: change(answer.rows)


def row(change: Callable[[Row], object]) -> Callable[[Answer], object]:
    """Change the first row of the first page of each device that has one."""
    return lambda answer: change(answer.rows[0]) if answer.is_first and answer.rows else None


def only(is_first: bool, change: Callable[[Answer], object]) -> Callable[[Answer], object]:
    """Change the first page of each list, or those after it."""
    return lambda answer: change(answer) if answer.is_first is is_first else None


def status(number: int, error: str) -> Callable[[Answer], object]:
    def change(answer: Answer) -> None:
        answer.status, answer.body = number, json.dumps({"error": error, "message": "planted"}).encode()

    return change


def body(content: bytes | None) -> Callable[[Answer], object]:
    return lambda answer: setattr(answer, "body", content)


def more(**changed: Any) -> Callable[[Answer], object]:
    return lambda answer: answer.more.update(changed)


def once(change: Callable[[Answer], object]) -> Callable[[Answer], object]:
    """For the first device alone."""
    chosen: list[str] = []

    def changed(answer: Answer) -> None:
        chosen.append(answer.name)
        if answer.name == chosen[0]:
            change(answer)

    return changed


UNREAD = "not everything could be read back"
SHAPELESS = "no readings in a shape that is known"
GIVEN: dict[str, tuple[str, Callable[[Answer], object], ExitCode, str]] = {
    "later pages are empty": ("both", only(False, rows(list.clear)), LOST, " lost"),
    "it ends with the first page": ("both", only(True, more(next_cursor=None, has_more=False)), LOST, " lost"),
    "a page comes twice": ("both", only(False, rows(lambda each: each.extend(each[:]))), LOST, " doubled"),
    "readings never end": ("readings", more(next_cursor="2", has_more=True), INCONCLUSIVE, "repeats the same page"),
    "commands never end": ("commands", more(next_cursor="0", has_more=True), LOST, " doubled"),
    "more is said, and not how to get it": (
        "readings",
        more(next_cursor=None, has_more=True),
        INCONCLUSIVE,
        "not how to get it",
    ),
    "404 for one device": ("both", once(status(404, "device_not_found")), LOST, "does not know 1 devices"),
    "500": ("both", status(500, "internal_error"), INCONCLUSIVE, "500"),
    "401": ("readings", status(401, "unauthorized"), INCONCLUSIVE, "401"),
    "a page of HTML": ("both", body(b"<!doctype html><html><body>Sign in</body></html>"), INCONCLUSIVE, UNREAD),
    "half of the JSON": ("readings", body(b'{"data": [{"id": '), INCONCLUSIVE, UNREAD),
    "the connection breaks": ("readings", body(None), INCONCLUSIVE, UNREAD),
    "an object without a list": ("both", body(b'{"count": 30}'), INCONCLUSIVE, UNREAD),
    "one row is null": ("readings", rows(lambda each: each.append(None)), INCONCLUSIVE, SHAPELESS),  # type: ignore[arg-type]
    "readings are null": ("readings", row(lambda each: each.update(sensor_data=None)), INCONCLUSIVE, SHAPELESS),
    "rows name another device": ("readings", row(lambda each: each.update(device_id="another")), LOST, " lost"),
    "a time is a word": (
        "readings",
        row(lambda each: each.update(recorded_at="yesterday")),
        INCONCLUSIVE,
        "without a recorded_at that can be read",
    ),
    "a row without its payload": ("commands", once(row(lambda each: each.pop("command_payload"))), LOST, "1 lost"),
    "one more that cannot be read": (
        "commands",
        once(only(True, rows(lambda each: each.append({"id": "x"})))),
        INCONCLUSIVE,
        "1 rows in lists of commands cannot be read",
    ),
    "a state that nobody knows": (
        "commands",
        once(row(lambda each: each.update(status="done"))),
        INCONCLUSIVE,
        "1 commands are listed in a state that is not known",
    ),
}


@pytest.mark.parametrize(
    ("name", "of"),
    [(name, of) for name, given in GIVEN.items() for of in ("readings", "commands") if given[0] in {of, "both"}],
)
def test_what_is_given_back_otherwise_is_found_or_said_to_be_unjudged(case, name, of):
    _, change, code, words = GIVEN[name]
    case.page, case.change = 2, {of: change}
    found, said = case.audit()
    assert (found, words in said) == (code, True), said


def test_times_without_a_zone_are_those_of_the_zone_that_the_scenario_names(case):
    zone = timezone(timedelta(hours=2))
    for each in case.readings:
        for name in ("recorded_at", "received_at"):
            each[name] = datetime.fromtimestamp(parse_time(each[name]), zone).replace(tzinfo=None).isoformat()
    assert case.audit()[0] == LOST
    change_ledger(case, "UPDATE rules SET json = json_set(json, '$.dialect.time_zone', '+02:00')")
    code, said = case.audit()
    assert code == GOOD, said


# --- what the run wrote down ------------------------------------------------------------------------------------------


def change_ledger(case: Case, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(case.folder / "run.sqlite")) as database, database:
        assert database.execute(statement, values).rowcount == 1


A_START = "FROM command_events WHERE rowid = (SELECT min(rowid) FROM command_events WHERE kind = 'started')"


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        (f"INSERT INTO command_events SELECT * {A_START}", LOST, "1 doubled"),
        (f"DELETE {A_START}", LOST, "1 lost"),
        ("DELETE FROM ledgers WHERE worker = 1", INCONCLUSIVE, "3 of 6 devices have no ledger"),
        ("UPDATE ledgers SET ended = 0 WHERE worker = 1", INCONCLUSIVE, "has no end"),
        (
            "INSERT INTO gaps VALUES (1, 1.0, 2.0, 7, 'it was full')",
            INCONCLUSIVE,
            "7 records from 1 s to 2 s: it was full",
        ),
    ],
)
def test_an_effect_too_many_or_too_few_is_found_and_a_ledger_that_is_not_whole_proves_nothing(
    case, statement, code, words
):
    change_ledger(case, statement)
    found, said = case.audit()
    assert (found, words in said) == (code, True), said


def test_a_reading_that_carries_another_time_than_that_at_which_it_was_made_fails_the_run(case):
    later(5)(case.readings[3])
    number = case.readings[3]["sensor_data"]["fleet_sequence"] % 2**32
    own = "device = (SELECT device FROM devices WHERE device_id = ?) AND sequence = ?"
    device_id = case.readings[3]["device_id"]
    change_ledger(case, f"UPDATE sendings SET recorded_ms = recorded_ms + 5000 WHERE {own}", device_id, number)
    code, said = case.audit()
    assert (code, "1 of " in said, "by up to 5." in said) == (ExitCode.CHECK_FAILED, True, True), said
    assert re.search(r"misdated +1 ", said), said


def test_a_database_that_is_cut_is_refused(case):
    path = case.folder / "run.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ConfigurationError, match="is damaged"):
        case.audit()
