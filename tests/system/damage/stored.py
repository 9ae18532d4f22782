"""What the service stored, changed behind its back; and what the run wrote down for its audit, not whole."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.exit_codes import ExitCode
from tests.system.damage.run import INCONCLUSIVE, LOST, USAGE, Case, Kind, planted

_ONE = "(SELECT row FROM readings ORDER BY row LIMIT 1 OFFSET 3)"
_DEVICE = "(SELECT device FROM readings ORDER BY row LIMIT 1)"
_COMMAND = "(SELECT row FROM commands ORDER BY row LIMIT 1 OFFSET 2)"


def _sensor_data(change: Callable[[dict[str, Any]], object]) -> Callable[[Case], None]:
    def plant(case: Case) -> None:
        (row, text) = case.database.execute(f"SELECT row, sensor_data FROM readings WHERE row = {_ONE}").fetchone()
        values = json.loads(text)
        change(values)
        case.stored("UPDATE readings SET sensor_data = ? WHERE row = ?", json.dumps(values), row)

    return plant


def _sql(statement: str, *values: Any) -> Callable[[Case], None]:
    return lambda case: case.stored(statement, *values)


def _copy_of(table: str, changed: dict[str, Any], where: str) -> Callable[[Case], None]:
    """Store a row once more, under another id."""

    def plant(case: Case) -> None:
        row = dict(case.database.execute(f"SELECT * FROM {table} WHERE row = {where}").fetchone())
        row |= {"row": None, "id": str(uuid.uuid4()), **changed}
        marks = ", ".join("?" * len(row))
        case.stored(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())

    return plant


def _swapped(column: str) -> Callable[[Case], None]:
    """Exchange what two readings of one device hold."""

    def plant(case: Case) -> None:
        query = f"SELECT row, {column} FROM readings WHERE device = {_DEVICE} ORDER BY row LIMIT 2"
        (one, of_one), (other, of_other) = case.database.execute(query).fetchall()
        for row, value in ((one, of_other), (other, of_one)):
            case.stored(f"UPDATE readings SET {column} = ? WHERE row = ?", value, row)

    return plant


def _values_swapped(case: Case) -> None:
    """Exchange the values of two readings, and leave each its number."""
    query = f"SELECT row, sensor_data FROM readings WHERE device = {_DEVICE} ORDER BY row"
    found = [(row, json.loads(text)) for row, text in case.database.execute(query).fetchall()]
    number_of = {row: values.pop("fleet_sequence") for row, values in found}
    # Two that differ: rounded values may be the same in one reading after the other.
    rows = [found[0], next(each for each in found if each[1] != found[0][1])]
    numbers = [number_of[row] for row, _ in rows]
    for (row, _), (_, values), number in zip(rows, reversed(rows), numbers, strict=True):
        text = json.dumps({**values, "fleet_sequence": number})
        case.stored("UPDATE readings SET sensor_data = ? WHERE row = ?", text, row)


def _moved(table: str, where: str) -> Callable[[Case], None]:
    """Give a row to another device of the run."""
    return _sql(
        f"UPDATE {table} SET device = (SELECT device FROM {table} AS t "
        f"WHERE t.device <> {table}.device ORDER BY row LIMIT 1) WHERE row = {where}"
    )


def _of_a_stranger(case: Case) -> None:
    """Give a reading to a device that is not of the run."""
    _copy_of("devices", {"device_identifier": "stranger"}, "(SELECT min(row) FROM devices)")(case)
    case.stored(f"UPDATE readings SET device = (SELECT max(row) FROM devices) WHERE row = {_ONE}")


def stored_readings() -> Iterator[Kind]:
    place = "stored readings"

    def kind(name: str, plant: Callable[[Case], object], *words: str) -> Kind:
        return planted(place, name, plant, LOST, *words)

    yield kind("one deleted", _sql(f"DELETE FROM readings WHERE row = {_ONE}"), "1 lost")
    yield kind(
        "the last one deleted", _sql("DELETE FROM readings WHERE row = (SELECT max(row) FROM readings)"), "1 lost"
    )
    yield kind("all of a device deleted", _sql(f"DELETE FROM readings WHERE device = {_DEVICE}"), "lost")
    yield kind("all deleted", _sql("DELETE FROM readings"), "0 given back", "lost")
    yield kind("one stored twice", _copy_of("readings", {}, _ONE), "1 doubled")
    yield kind("one stored twice, with another value", _doubled_and_altered, "1 doubled, 1 altered")
    yield kind("a value off by a millionth", _sensor_data(_off), "1 altered")
    yield kind("a value gone", _sensor_data(lambda values: values.pop("humidity_percent")), "1 altered")
    yield kind("two values exchanged in one", _sensor_data(_turned), "1 altered")
    yield kind("the values of two exchanged", _values_swapped, "2 altered")
    yield kind("a number that was never sent", _sensor_data(_numbered(1000)), "1 lost, 1 unknown")
    yield kind("the number gone", _sensor_data(lambda values: values.pop("fleet_sequence")), "1 lost, 1 unknown")
    yield kind("the number of another run", _sensor_data(_numbered(2**40)), "1 lost", "1 readings of other runs")
    yield kind(
        "dated a second later",
        _sql(f"UPDATE readings SET recorded_at = recorded_at + 1000 WHERE row = {_ONE}"),
        "1 altered",
    )
    yield kind(
        "dated 2 ms later", _sql(f"UPDATE readings SET recorded_at = recorded_at + 2 WHERE row = {_ONE}"), "1 altered"
    )
    yield kind(
        "dated a day earlier",
        _sql(f"UPDATE readings SET recorded_at = recorded_at - 86400000 WHERE row = {_ONE}"),
        "1 lost",
    )
    yield kind("the times of two exchanged", _swapped("recorded_at"), "2 altered")
    yield kind("one under another device of the run", _moved("readings", _ONE), "1 lost")
    yield kind("one under a device of nobody", _of_a_stranger, "1 lost")
    yield kind("one that nobody sent", _copy_with_number, "1 unknown")


def _doubled_and_altered(case: Case) -> None:
    _copy_of("readings", {}, _ONE)(case)
    (text,) = case.database.execute(f"SELECT sensor_data FROM readings WHERE row = {_ONE}").fetchone()
    values = json.loads(text)
    _off(values)
    newest = "(SELECT max(row) FROM readings)"
    case.stored(f"UPDATE readings SET sensor_data = ? WHERE row = {newest}", json.dumps(values))


def _copy_with_number(case: Case) -> None:
    (text,) = case.database.execute(f"SELECT sensor_data FROM readings WHERE row = {_ONE}").fetchone()
    values = json.loads(text)
    values["fleet_sequence"] += 500
    _copy_of("readings", {"sensor_data": json.dumps(values)}, _ONE)(case)


def _off(values: dict[str, Any]) -> None:
    values["temperature_celsius"] *= 1.000001


def _turned(values: dict[str, Any]) -> None:
    one, other = values["temperature_celsius"], values["humidity_percent"]
    values |= {"temperature_celsius": other, "humidity_percent": one}


def _numbered(more: int) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        values["fleet_sequence"] += more

    return change


def stored_commands() -> Iterator[Kind]:
    place = "stored commands"

    def kind(name: str, plant: Callable[[Case], object], *words: str) -> Kind:
        return planted(place, name, plant, LOST, *words)

    yield kind("one deleted", _sql(f"DELETE FROM commands WHERE row = {_COMMAND}"), "1 lost")
    yield kind("all deleted", _sql("DELETE FROM commands"), "0 listed", "lost")
    yield kind("one stored twice", _copy_of("commands", {}, _COMMAND), "1 unknown")
    for state in ("failed", "rejected"):
        yield kind(
            f"succeeded, stored as {state}",
            _sql(f"UPDATE commands SET status = '{state}' WHERE row = {_COMMAND}"),
            "1 altered",
        )
    for state in ("queued", "in_progress", "expired"):
        yield kind(
            f"succeeded, stored as {state}",
            _sql(f"UPDATE commands SET status = '{state}', expires_at = 4000000000000 WHERE row = {_COMMAND}"),
            "1 lost",
        )
    payload = """UPDATE commands SET command_payload = '{"command":"pong"}' WHERE row = """
    yield kind("another payload", _sql(payload + _COMMAND), "1 altered")
    result = """UPDATE commands SET result = '{"pong":"altered"}' WHERE row = """
    yield kind("another result", _sql(result + _COMMAND), "1 altered")
    yield kind("one under another device", _moved("commands", _COMMAND), "1 lost")
    yield kind(
        "under another id",
        _sql(f"UPDATE commands SET id = '{uuid.UUID(int=7)}' WHERE row = {_COMMAND}"),
        "1 lost",
        "1 unknown",
    )
    yield Kind(
        "stored devices",
        "one removed",
        _sql(f"UPDATE devices SET removed_at = 1 WHERE row = {_DEVICE}"),
        LOST,
        ("does not know 1 devices", "lost"),
    )
    yield Kind(
        "stored devices",
        "one under another id",
        _sql(f"UPDATE devices SET id = '{uuid.UUID(int=8)}' WHERE row = {_DEVICE}"),
        LOST,
        ("does not know 1 devices", "lost"),
    )


def mentioned() -> tuple[Kind, ...]:
    """What is counted and is no loss: a service may have its reasons for another order of arrival."""
    kind = partial(planted, "stored readings")
    early = "UPDATE readings SET received_at = received_at - 2000 WHERE row = (SELECT max(row) FROM readings)"
    return (
        kind("the arrivals of two exchanged", _swapped("received_at"), ExitCode.GOOD, "reordered"),
        kind("one arrived before the one before it", _sql(early), ExitCode.GOOD, "reordered"),
    )


def _cut_database(case: Case) -> None:
    path = case.run / "run.sqlite"
    path.write_bytes(path.read_bytes()[:5000])


def ledgers() -> Iterator[Kind]:
    kind = partial(planted, "ledgers")
    of_one = "DELETE FROM ledgers WHERE worker = 1"
    yield kind("one missing", lambda case: case.ledgers(of_one), INCONCLUSIVE, "3 of 6 devices have no ledger")
    killed = "UPDATE ledgers SET ended = 0 WHERE worker = 1"
    yield kind("one without its end", lambda case: case.ledgers(killed), INCONCLUSIVE, "has no end")
    gap = "INSERT INTO gaps VALUES (1, 1.0, 2.0, 7, 'the disk was full')"
    yield kind("a gap", lambda case: case.ledgers(gap), INCONCLUSIVE, "lacks 7 records from 1 s to 2 s: the disk was")
    yield kind("the database cut", _cut_database, USAGE, "run.sqlite", "damaged")
