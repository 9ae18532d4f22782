"""What the service gives back: pages of its lists changed on their way to the audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.exit_codes import ExitCode
from tests.system.damage.run import AGAIN, INCONCLUSIVE, LOST, Case, Kind, ListAnswer, planted


def _answers(change: Callable[[ListAnswer], object], *, page: int = 0, of: str = "readings") -> Callable[[Case], None]:
    """Damage the answers of one list on their way."""

    def plant(case: Case) -> None:
        def changed(answer: ListAnswer) -> None:
            if answer.status == 200 and (answer.is_readings if of == "readings" else answer.is_commands):
                change(answer)

        case.change = changed
        case.page = page

    return plant


def _first_row(change: Callable[[dict[str, Any]], object]) -> Callable[[ListAnswer], None]:
    """Change the first row of the first page of a list, for each device that has one."""

    def changed(document: dict[str, Any]) -> None:
        if document["data"]:
            change(document["data"][0])

    return lambda answer: answer.document(changed) if not answer.query.get("cursor") else None


def _each_row(change: Callable[[dict[str, Any]], object]) -> Callable[[ListAnswer], None]:
    def changed(document: dict[str, Any]) -> None:
        for row in document["data"]:
            change(row)

    return lambda answer: answer.document(changed)


def _page(change: Callable[[dict[str, Any]], object], *, later: bool) -> Callable[[ListAnswer], None]:
    """Change the first page of a list, or those after it."""
    return lambda answer: answer.document(change) if bool(answer.query.get("cursor")) is later else None


def _emptied(document: dict[str, Any]) -> None:
    document["data"] = []


def _ended(document: dict[str, Any]) -> None:
    document |= {"next_cursor": None, "has_more": False}


def _twice(document: dict[str, Any]) -> None:
    document["data"] = document["data"] * 2


def _endless(answer: ListAnswer) -> None:
    answer.document(lambda document: document.update(next_cursor=AGAIN, has_more=True))


def _status(status: int, error: str) -> Callable[[ListAnswer], None]:
    def change(answer: ListAnswer) -> None:
        answer.status, answer.body = status, json.dumps({"error": error, "message": "planted"}).encode()

    return change


def _body(body: bytes, content_type: str = "application/json") -> Callable[[ListAnswer], None]:
    def change(answer: ListAnswer) -> None:
        answer.body, answer.content_type = body, content_type

    return change


def _cut(answer: ListAnswer) -> None:
    answer.cut = len(answer.body) // 2


def _halved(answer: ListAnswer) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def _once(change: Callable[[ListAnswer], object]) -> Callable[[ListAnswer], None]:
    """For one device alone: the one that the first query names."""
    chosen: list[str] = []

    def changed(answer: ListAnswer) -> None:
        name = answer.query.get("device_id", answer.path)
        chosen.append(name)
        if name == chosen[0]:
            change(answer)

    return changed


def _values(change: Callable[[dict[str, Any]], object]) -> Callable[[ListAnswer], None]:
    return _first_row(lambda row: change(row["sensor_data"]))


def given_readings() -> Iterator[Kind]:
    kind = partial(planted, "the list of readings")

    yield kind("later pages are empty", _answers(_page(_emptied, later=True), page=2), LOST, "lost")
    yield kind("it ends with the first page", _answers(_page(_ended, later=False), page=2), LOST, "lost")
    yield kind("a page comes twice", _answers(_page(_twice, later=True), page=2), LOST, "doubled")
    yield kind("it never ends", _answers(_endless, page=2), INCONCLUSIVE, "repeats the same page")
    yield kind(
        "more is said, and not how to get it",
        _answers(lambda answer: answer.document(lambda d: d.update(next_cursor=None, has_more=True))),
        INCONCLUSIVE,
        "not how to get it",
    )
    yield kind(
        "404 for one device", _answers(_once(_status(404, "device_not_found"))), LOST, "does not know 1 devices", "lost"
    )
    yield kind("500", _answers(_status(500, "internal_error")), INCONCLUSIVE, "500")
    yield kind("401", _answers(_status(401, "unauthorized")), INCONCLUSIVE, "401")
    yield kind(
        "a page of HTML",
        _answers(_body(b"<!doctype html><html><body>Sign in</body></html>", "text/html")),
        INCONCLUSIVE,
        "not everything could be read back",
    )
    yield kind("an empty body", _answers(_body(b"")), INCONCLUSIVE, "not everything could be read back")
    yield kind("half of the JSON", _answers(_halved), INCONCLUSIVE, "not everything could be read back")
    yield kind("the connection breaks in the body", _answers(_cut), INCONCLUSIVE, "not everything could be read back")
    yield kind("null in its place", _answers(_body(b"null")), INCONCLUSIVE, "not everything could be read back")
    yield kind(
        "an object without a list", _answers(_body(b'{"count": 30}')), INCONCLUSIVE, "not everything could be read back"
    )
    yield kind(
        "rows are arrays",
        _answers(lambda answer: answer.document(lambda d: d.update(data=[list(row.values()) for row in d["data"]]))),
        INCONCLUSIVE,
        "no readings in a shape that is known",
    )
    yield kind(
        "one row is null",
        _answers(lambda answer: answer.document(lambda d: d["data"].append(None))),
        INCONCLUSIVE,
        "no readings in a shape that is known",
    )
    yield kind(
        "readings are null",
        _answers(_each_row(lambda row: row.update(sensor_data=None))),
        INCONCLUSIVE,
        "no readings in a shape that is known",
    )
    yield kind(
        "numbers are texts",
        _answers(_values(lambda values: values.update(temperature_celsius=str(values["temperature_celsius"])))),
        LOST,
        "altered",
    )
    yield kind(
        "numbers are rounded",
        _answers(_values(lambda values: values.update(temperature_celsius=round(values["temperature_celsius"], 1)))),
        LOST,
        "altered",
    )
    yield kind(
        "the sequence number is a text",
        _answers(_values(lambda values: values.update(fleet_sequence=str(values["fleet_sequence"])))),
        LOST,
        "lost",
        "unknown",
    )
    yield kind(
        "the sequence number has another name",
        _answers(_values(lambda values: values.update(sequence=values.pop("fleet_sequence")))),
        LOST,
        "lost",
        "unknown",
    )
    yield kind(
        "rows name another device", _answers(_first_row(lambda row: row.update(device_id="another"))), LOST, "lost"
    )
    yield kind(
        "a time is a word",
        _answers(_first_row(lambda row: row.update(recorded_at="yesterday"))),
        INCONCLUSIVE,
        "without a recorded_at that can be read",
    )
    yield kind("a time is in seconds", _answers(_first_row(lambda row: row.update(recorded_at=1))), LOST, "lost")
    yield kind(
        "a time has no zone and another hour",
        _answers(_first_row(lambda row: row.update(recorded_at="2020-01-01T00:00:00"))),
        LOST,
        "lost",
    )


def given_commands() -> Iterator[Kind]:
    place = "lists of commands"

    def kind(name: str, change: Callable[[ListAnswer], object], code: ExitCode, *words: str, page: int = 0) -> Kind:
        return Kind(place, name, _answers(change, page=page, of="commands"), code, words)

    yield kind("later pages are empty", _page(_emptied, later=True), LOST, "lost", page=2)
    yield kind("it ends with the first page", _page(_ended, later=False), LOST, "lost", page=2)
    yield kind("a page comes twice", _page(_twice, later=True), LOST, "doubled", page=2)
    yield kind("it never ends", _endless, LOST, "repeats the same page", "doubled", page=2)
    yield kind("empty for one device", _once(lambda answer: answer.document(_emptied)), LOST, "lost")
    yield kind("404 for one device", _once(_status(404, "device_not_found")), LOST, "does not know 1 devices", "lost")
    yield kind("500", _status(500, "internal_error"), INCONCLUSIVE, "500")
    yield kind(
        "a page of HTML",
        _body(b"<!doctype html><html><body>Sign in</body></html>", "text/html"),
        INCONCLUSIVE,
        "not everything could be read back",
    )
    yield kind("an object without a list", _body(b'{"count": 30}'), INCONCLUSIVE, "not everything could be read back")
    yield kind(
        "a row without its payload",
        _once(_first_row(lambda row: row.pop("command_payload"))),
        LOST,
        "1 lost",
        "1 rows in lists of commands cannot be read",
    )
    yield kind(
        "one more that cannot be read",
        _once(lambda answer: answer.document(lambda d: d["data"].append({"id": "x"}))),
        INCONCLUSIVE,
        "1 rows in lists of commands cannot be read",
    )
    yield kind(
        "a state that nobody knows",
        _once(_first_row(lambda row: row.update(status="done"))),
        INCONCLUSIVE,
        "1 commands are listed in a state that is not known",
    )
    yield kind("another state", _once(_first_row(lambda row: row.update(status="failed"))), LOST, "1 altered")
