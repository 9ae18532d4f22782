"""The record of the run and its seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.damage.run import INCONCLUSIVE, USAGE, Case, Kind, planted

_OK = ("http.sensor_data", "ok")


def _seconds(change: Callable[[list[str]], list[str]]) -> Callable[[Case], None]:
    return lambda case: case.lines("seconds.jsonl", change)


def _second(change: Callable[[dict[str, Any]], object], number: int = 2) -> Callable[[Case], None]:
    return lambda case: case.second(number, change)


def _record(change: Callable[[dict[str, Any]], object]) -> Callable[[Case], None]:
    return lambda case: case.document(change)


def _tally(document: dict[str, Any]) -> dict[str, Any]:
    tally: dict[str, Any] = document["operations"][_OK[0]][_OK[1]]
    return tally


def _counted(document: dict[str, Any]) -> None:
    _tally(document)["count"] += 1


def _outcome_renamed(document: dict[str, Any]) -> None:
    outcomes = document["operations"][_OK[0]]
    outcomes["refused"] = outcomes.pop("ok")


def _operation_renamed(document: dict[str, Any]) -> None:
    document["operations"]["http.report"] = document["operations"].pop(_OK[0])


def metrics() -> Iterator[Kind]:
    kind = partial(planted, "seconds.jsonl")

    differ = "seconds.jsonl and run.json differ: "
    yield kind(
        "missing",
        lambda case: (case.run / "seconds.jsonl").unlink(),
        INCONCLUSIVE,
        "seconds.jsonl lacks",
        "seconds (0, 1, 2, 3, 4",
    )
    yield kind("empty", _seconds(lambda _: []), INCONCLUSIVE, "seconds.jsonl lacks", "seconds (0, 1, 2, 3, 4")
    yield kind(
        "the first second missing",
        _seconds(lambda lines: lines[1:]),
        INCONCLUSIVE,
        "seconds.jsonl lacks 1 of",
        "seconds (0)",
    )
    yield kind(
        "a second missing",
        _seconds(lambda lines: lines[:2] + lines[3:]),
        INCONCLUSIVE,
        "seconds.jsonl lacks 1 of",
        "seconds (2)",
    )
    yield kind(
        "the last second missing",
        _seconds(lambda lines: lines[:-1]),
        INCONCLUSIVE,
        "seconds.jsonl lacks 1 of",
    )
    yield kind(
        "cut in the middle",
        _seconds(lambda lines: [*lines[:3], lines[3][:50]]),
        INCONCLUSIVE,
        "seconds.jsonl lacks",
        "seconds (3, 4, 5",
    )
    yield kind(
        "the last line feed cut",
        _seconds(lambda lines: [*lines[:-1], lines[-1].rstrip()]),
        INCONCLUSIVE,
        "seconds.jsonl lacks 1 of",
    )
    yield kind(
        "a second twice",
        _seconds(lambda lines: [*lines[:3], lines[2], *lines[3:]]),
        USAGE,
        "second 2 comes after second 2",
    )
    yield kind(
        "two seconds exchanged",
        _seconds(lambda lines: [lines[1], lines[0], *lines[2:]]),
        USAGE,
        "second 0 comes after second 1",
    )
    yield kind(
        "a second that is no JSON", _seconds(lambda lines: [*lines[:2], "{\n", *lines[3:]]), USAGE, "seconds.jsonl:3"
    )
    yield kind(
        "a second with a member more", _second(lambda second: second.update(more=1)), USAGE, "seconds.jsonl:3", "more"
    )
    yield kind(
        "a second with a member less", _second(lambda second: second.pop("health")), USAGE, "seconds.jsonl:3", "health"
    )
    yield kind(
        "a second with another number",
        _second(lambda second: second.update(second=99), -1),
        INCONCLUSIVE,
        "seconds.jsonl lacks",
        "of 100 seconds",
    )
    yield kind("a count", _second(_counted), INCONCLUSIVE, differ + "http.sensor_data ok (")
    yield kind(
        "first attempts",
        _second(lambda second: _tally(second).update(first_attempts=0)),
        INCONCLUSIVE,
        differ + "http.sensor_data ok",
    )
    yield kind(
        "an operation missing",
        _second(lambda second: second["operations"].pop(_OK[0])),
        INCONCLUSIVE,
        differ + "http.sensor_data ok",
    )
    yield kind("an operation under another name", _second(_operation_renamed), INCONCLUSIVE, differ)
    yield kind("an outcome under another name", _second(_outcome_renamed), INCONCLUSIVE, differ + "http.sensor_data ok")
    yield kind(
        "an outcome that nobody knows",
        _second(lambda second: second["operations"][_OK[0]].update(fine=_tally(second))),
        USAGE,
        "seconds.jsonl:3",
    )
    yield kind(
        "the times of another operation",
        _second(
            lambda second: _tally(second).update(response=second["operations"]["http.long_poll"]["ok"]["response"])
        ),
        INCONCLUSIVE,
        differ + "http.sensor_data ok (the times)",
    )
    yield kind(
        "times that are none",
        _second(lambda second: _tally(second).update(response="h1.AAAA")),
        USAGE,
        "seconds.jsonl is damaged",
    )
    yield kind(
        "ages missing",
        _second(lambda second: second["operations"].pop("readings.age")),
        INCONCLUSIVE,
        differ + "readings.age ok",
    )
    yield kind(
        "a stage of commands missing",
        _second(lambda second: second["operations"].pop("commands.delivered")),
        INCONCLUSIVE,
        differ + "the stages of commands",
    )
    yield kind(
        "requests of the generator",
        _second(lambda second: second["health"].update(sent=second["health"]["sent"] + 1)),
        INCONCLUSIVE,
        differ + "the generator's requests",
    )


def _threshold(**members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["thresholds"][1].update(members)


def _verdict(**members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["verdict"].update(members)


def record_file() -> Iterator[Kind]:
    kind = partial(planted, "run.json")

    differ = "seconds.jsonl and run.json differ: "
    yield kind("missing", lambda case: (case.run / "run.json").unlink(), USAGE, "run.json: not there")
    yield kind("empty", lambda case: (case.run / "run.json").write_text(""), USAGE, "run.json: no JSON")
    yield kind(
        "cut in the middle",
        lambda case: (case.run / "run.json").write_bytes((case.run / "run.json").read_bytes()[:500]),
        USAGE,
        "run.json: no JSON",
    )
    yield kind(
        "another format",
        _record(lambda document: document.update(format="fleet-run/9")),
        USAGE,
        "run.json: format is 'fleet-run/9'",
    )
    yield kind("a member missing", _record(lambda document: document.pop("health")), USAGE, "run.json: health")
    yield kind("a member more", _record(lambda document: document.update(more=1)), USAGE, "run.json: more")
    yield kind(
        "a text for a number", _record(lambda document: document.update(devices="6")), USAGE, "run.json: devices"
    )
    yield kind("a count", _record(_counted), INCONCLUSIVE, differ + "http.sensor_data ok (")
    yield kind(
        "an operation missing",
        _record(lambda document: document["operations"].pop(_OK[0])),
        INCONCLUSIVE,
        differ + "http.sensor_data ok (",
    )
    yield kind(
        "an operation more",
        _record(lambda document: document["operations"].update({"http.register": document["operations"][_OK[0]]})),
        INCONCLUSIVE,
        differ + "http.register ok (",
    )
    yield kind(
        "an outcome under another name",
        _record(_outcome_renamed),
        INCONCLUSIVE,
        differ + "http.sensor_data ok (",
    )
    yield kind(
        "the times of another operation",
        _record(
            lambda document: _tally(document).update(
                response=document["operations"]["http.long_poll"]["ok"]["response"]
            )
        ),
        INCONCLUSIVE,
        differ + "http.sensor_data ok (the times)",
    )
    yield kind(
        "times that are none",
        _record(lambda document: _tally(document).update(response="h1.AAAA")),
        USAGE,
        "run.json or seconds.jsonl is damaged",
    )
    yield kind(
        "ages missing",
        _record(lambda document: document.update(ages={})),
        INCONCLUSIVE,
        differ,
        "readings.age ok (",
    )
    yield kind(
        "a stage of commands missing",
        _record(lambda document: document["command_stages"].pop("delivered")),
        INCONCLUSIVE,
        differ + "the stages of commands",
    )
    yield kind(
        "requests of the generator",
        _record(lambda document: document["health"].update(sent=1)),
        INCONCLUSIVE,
        differ + "the generator's requests",
    )
    yield kind(
        "a longer run",
        _record(lambda document: document.update(duration_s=60.0)),
        INCONCLUSIVE,
        "seconds.jsonl lacks",
        "of 60 seconds",
    )
    yield kind(
        "no end",
        _record(lambda document: document.update(ended_at="")),
        USAGE,
        "run.json: it has no end, and yet the sums of a run that ended",
    )
    yield kind(
        "another exit code",
        _record(_verdict(exit_code=1)),
        INCONCLUSIVE,
        "the verdict passed does not have the exit code 1",
    )
    yield kind(
        "another verdict",
        _record(_verdict(word="failed")),
        INCONCLUSIVE,
        "the verdict failed does not have the exit code 0",
    )
    yield kind("a verdict that nobody knows", _record(_verdict(word="fine")), USAGE, "run.json: verdict.word")
    yield kind(
        "a threshold that did not hold",
        _record(_threshold(held=False)),
        INCONCLUSIVE,
        "the verdict is passed, and a threshold did not hold",
    )
    yield kind(
        "another value of a threshold",
        _record(_threshold(observed=1e-9)),
        INCONCLUSIVE,
        "says of the threshold 'http.sensor_data.p99 < 60s' what its seconds and its audit do not",
    )
    yield kind(
        "another threshold",
        _record(_threshold(expression="http.sensor_data.p99 < 1us")),
        INCONCLUSIVE,
        "is not of the scenario in it: thresholds",
    )
    yield kind(
        "a threshold that is none",
        _record(_threshold(expression="p99")),
        INCONCLUSIVE,
        "is not of the scenario in it: thresholds",
    )
    yield kind(
        "a threshold missing",
        _record(lambda document: document["thresholds"].pop()),
        INCONCLUSIVE,
        "is not of the scenario in it: thresholds",
    )
    yield kind(
        "readings lost in the audit",
        _record(lambda document: document["audit"]["readings"].update(lost=1)),
        INCONCLUSIVE,
        "the verdict is passed, and its audit has findings",
    )
    yield kind(
        "an audit that is not complete",
        _record(lambda document: document["audit"].update(complete=False)),
        INCONCLUSIVE,
        "the verdict is passed, and its audit is not",
    )
    yield kind(
        "no audit",
        _record(lambda document: document.update(audit=None)),
        INCONCLUSIVE,
        "has no audit, and ledgers are beside it",
    )
    yield kind(
        "a gap",
        _record(
            lambda document: document.update(gaps=[{"worker": 0, "from_s": 1.0, "to_s": 2.0, "reason": "planted"}])
        ),
        INCONCLUSIVE,
        "the verdict is passed, and the run is not whole",
    )
    yield kind(
        "other phases",
        _record(lambda document: document["phases"][0].update(end_s=90.0)),
        INCONCLUSIVE,
        "has a phase until 90 s, and ended after",
    )
    yield kind(
        "another name of the scenario",
        _record(lambda document: document.update(name="another")),
        INCONCLUSIVE,
        "is not of the scenario in it: scenario",
    )
    yield kind(
        "other devices",
        _record(lambda document: document.update(devices=7)),
        INCONCLUSIVE,
        "is not of the scenario in it: devices",
    )
