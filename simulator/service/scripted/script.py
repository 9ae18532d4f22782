"""Scripts of devices: what a device answers to which command, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import Field, model_validator

from agent.wire import json_text
from agent.wire.base import Items, JsonObject, Sent, Text
from agent.wire.commands import CommandResult
from agent.wire.limits import COMMAND_PAYLOAD_BYTES

ANSWERS_MAX: Final = 50
SECONDS_MAX: Final = 366 * 86_400
POLLS_MAX: Final = 10_000
TIMES_MAX: Final = 1_000_000
EVERY_MIN_S: Final = 0.1
NAMED_BY: Final = "command"
"""The member of ``command_payload`` that names the command."""
UNKNOWN: Final = CommandResult(status="rejected", error="this device's script has no answer for the command")

Seconds = Annotated[float, Field(strict=False, ge=0, le=SECONDS_MAX)]


class ScriptedAnswer(Sent):
    """What a device answers to a command, and when."""

    command: Annotated[
        Text | None,
        Field(description="The `command` of `command_payload` that is answered like this; all when it is left out."),
    ] = None
    times: Annotated[
        int | None,
        Field(ge=1, le=TIMES_MAX, description="So many commands are answered like this, later ones by later answers."),
    ] = None
    status: Annotated[
        Literal["succeeded", "failed", "rejected", "never"],
        Field(description="`never`: the command is delivered, and nothing comes back."),
    ] = "succeeded"
    result: Annotated[JsonObject | None, Field(description="What is reported with it.")] = None
    error: Annotated[Text | None, Field(max_length=1000, description="Why it failed or was rejected.")] = None
    after_s: Annotated[
        Seconds | None, Field(description="Seconds of the service's clock after the delivery; at once without it.")
    ] = None
    after_polls: Annotated[
        int | None,
        Field(ge=1, le=POLLS_MAX, description="The device's polls that list the command before it is answered."),
    ] = None
    in_progress: Annotated[bool, Field(description="Report `in_progress` when the command is delivered.")] = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.after_s is not None and self.after_polls is not None:
            raise ValueError("after_s and after_polls exclude each other: give one")
        given: tuple[object, ...] = (self.after_s, self.after_polls, self.result, self.error)
        if self.status == "never" and any(value is not None for value in given):
            raise ValueError("never has no result, error, after_s or after_polls: leave them out")
        if self.status == "succeeded" and self.error is not None:
            raise ValueError("error belongs to failed and rejected")
        if self.result is not None and json_text.size_bytes(self.result) > COMMAND_PAYLOAD_BYTES:
            raise ValueError(f"result is larger than {COMMAND_PAYLOAD_BYTES} bytes")
        return self

    def report(self) -> CommandResult | None:
        """The result to report; None for never."""
        if self.status == "never":
            return None
        return CommandResult(status=self.status, result=self.result, error=self.error)


class ScriptedReadings(Sent):
    """What a device sends by itself."""

    every_s: Annotated[
        float,
        Field(strict=False, ge=EVERY_MIN_S, le=SECONDS_MAX, description="Seconds of the service's clock between two."),
    ]
    signals: Annotated[
        dict[Text, JsonObject],
        Field(min_length=1, max_length=50, description="Reading -> its signal, as in a scenario: docs/scenarios.md."),
    ]
    seed: Annotated[int, Field(ge=0, lt=1 << 63, description="Of the signals' chance.")] = 0


class DeviceScript(Sent):
    """A registered device, and what it does from now on."""

    device_id: Text
    answers: Annotated[
        Items[ScriptedAnswer],
        Field(
            max_length=ANSWERS_MAX,
            description="For each command the first that fits; a command that none fits is rejected. Without any, "
            "every command succeeds at once.",
        ),
    ] = (ScriptedAnswer(),)
    poll_s: Annotated[
        float | None,
        Field(
            strict=False,
            ge=EVERY_MIN_S,
            le=SECONDS_MAX,
            description="Seconds of the service's clock between two polls. Without it the device is there all the "
            "time, as on a poll that is held.",
        ),
    ] = None
    readings: ScriptedReadings | None = None

    @model_validator(mode="after")
    def _check_polling(self) -> Self:
        if self.poll_s is None and any(answer.after_polls is not None for answer in self.answers):
            raise ValueError("answers with after_polls need poll_s")
        return self


class Chooser:
    """Chooses the answer to each command, by the script and by how often its answers were used.

    Args:
        answers: of the script.
    """

    def __init__(self, answers: Sequence[ScriptedAnswer]) -> None:
        self._answers = answers
        self._left = [answer.times for answer in answers]

    def choose(self, payload: Mapping[str, Any]) -> ScriptedAnswer | None:
        """The answer to a command, which uses it once; None when there is none."""
        for place, answer in enumerate(self._answers):
            left = self._left[place]
            if left == 0 or answer.command not in {None, payload.get(NAMED_BY)}:
                continue
            if left is not None:
                self._left[place] = left - 1
            return answer
        return None


class Signals(Protocol):
    """What the sensors of one device read, as a function of time."""

    def read(self, time_s: float) -> Mapping[str, float]:
        """Every reading at an instant, seconds since the epoch; those without a value then are left out."""
        ...


class SignalFaultsError(Exception):
    """Signals that cannot be made.

    Attributes:
        faults: (field below ``signals``, issue).
    """

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{field}: {issue}" for field, issue in faults))


MakeSignals = Callable[[Mapping[str, JsonObject], str, int], Signals]
"""Signals by reading name, the name of the device, and a seed -> what its sensors read. Raises SignalFaultsError."""
