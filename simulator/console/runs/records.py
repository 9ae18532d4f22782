"""Runs and scenarios as the control paths show them: the JSON of ``/_emulator/runs`` and ``/_emulator/scenarios``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from agent.wire.base import Sent, Text


class RunState(StrEnum):
    """What is known of a run."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    KILLED = "killed"
    UNKNOWN = "unknown"
    """It has no end, and whether it still goes on cannot be seen."""
    NEVER_BEGAN = "never_began"
    UNREADABLE = "unreadable"


class VerdictShown(TypedDict):
    """How a run ended: the word, the exit code that belongs to it, and why."""

    word: str
    exit_code: int
    sentences: list[str]


class FigureShown(TypedDict):
    """A headline figure; ``unit`` is ``s``, ``per_s`` or ``share`` (of 1)."""

    name: str
    value: float
    unit: str


class ThresholdShown(TypedDict):
    """A threshold; ``observed`` is null when nothing was."""

    expression: str
    held: bool
    judged: bool
    observed: float | None
    unit: str


class RunShown(TypedDict):
    """A run. What is not known of it is null, or empty.

    ``fault`` says why it cannot be read or never began; ``last_words`` is what its program wrote to standard error,
    where it was started here, or what could not be made of its reports. ``live``: its progress can be followed at
    ``events``.
    """

    id: str
    state: RunState
    started_here: bool
    live: bool
    scenario: str
    kind: str
    level: str
    transport: str
    target: str
    devices: int | None
    workers: int | None
    began_at: str | None
    ended_at: str | None
    duration_s: float | None
    verdict: VerdictShown | None
    figures: list[FigureShown]
    thresholds: list[ThresholdShown]
    lost: int | None
    files: list[str]
    size_bytes: int
    fault: str | None
    last_words: list[str]


class RunList(TypedDict):
    """Runs of the folder, the latest first. ``total`` counts all that fit ``q``."""

    data: list[RunShown]
    total: int
    folder: str
    scenarios: str | None


class ScenarioShown(TypedDict):
    """A scenario's file. ``modified_at`` is RFC 3339."""

    name: str
    size_bytes: int
    modified_at: str


class ScenarioFault(TypedDict):
    """What is wrong with a scenario; line and column begin at 1, and are null for the file as a whole."""

    line: int | None
    column: int | None
    text: str


class ScenarioChecked(TypedDict):
    """A scenario with its text, what is wrong with it, and what a run of it would do: as `plan --json` has it."""

    name: str
    text: str
    faults: list[ScenarioFault]
    plan: dict[str, Any] | None


class StartRun(Sent):
    """Start a run."""

    scenario: Annotated[Text, Field(description="Name of a file in the folder of scenarios (`--scenarios`).")]
    audit: Annotated[bool, Field(description="Read everything back at the end, and compare.")] = True


class StopRun(Sent):
    """End a run."""

    at_once: Annotated[
        bool, Field(description="End a run that is being stopped already without handing over what is under way.")
    ] = False
