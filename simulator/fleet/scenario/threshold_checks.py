"""Whether the thresholds of a scenario can be read, and whether anything is measured that they could look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.fleet.metrics.ages import READING_AGE
from simulator.fleet.metrics.stages import FAMILY
from simulator.fleet.metrics.subjects import Source, Subject, ThresholdError
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.model import Scenario

_READS_NO_SENSORS: Final = {"onboarding_storm", "backfill"}


def check_thresholds(scenario: Scenario) -> Iterator[Finding]:
    """Each threshold that makes no sense, names a phase or a command that there is none of, or is never measured."""
    phases = {phase.name for phase in scenario.phases}
    commands = {command.name for command in scenario.commands}
    for index, expression in enumerate(scenario.thresholds):
        try:
            subject = parse(expression, phases=phases, commands=commands).subject
        except ThresholdError as error:
            yield Finding.at(("thresholds", index), ("phases",), ("commands",), issue=str(error))
            continue
        if issue := _never_measured(subject, scenario):
            yield Finding.at(("thresholds", index), ("commands",), ("level",), ("kind",), issue=issue)


def _never_measured(subject: Subject, scenario: Scenario) -> str:
    """Why nothing of it comes to be, and what to write instead; empty where something does."""
    if subject.source is not Source.OPERATIONS:
        return ""
    if any(name.partition(".")[0] == FAMILY for name in subject.names) and not scenario.commands:
        if scenario.level == "wire":
            return "level wire has no devices that carry commands out: take http.send_command, or 'level: core'"
        return "the scenario sends no commands: add 'commands:', or remove the threshold"
    if READING_AGE in subject.names:
        if scenario.kind in _READS_NO_SENSORS:
            return f"kind {scenario.kind} takes no readings that could grow old; remove the threshold"
        if scenario.level == "wire" and all(each.operation != "sensor_data" for each in scenario.arrivals):
            return "no arrivals with 'operation: sensor_data' hand readings over: add some, or remove the threshold"
    return ""
