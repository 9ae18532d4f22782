"""What a kind of signal consists of: settings, a function that makes the signal, and the registry of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from simulator.fleet.settings import Section, key
from simulator.fleet.signals.base import Signal

DIGITS_MAX: Final = 9
"""More decimals than any sensor has, and few enough to be the same on every machine."""

Digits = Annotated[int, Field(ge=0, le=DIGITS_MAX)]


class Shape(Section):
    """What the settings of every signal have; each kind narrows ``kind`` to its word."""

    kind: str
    min: float | None = key("lower values are given as this one", default=None, example=-40)
    max: float | None = key("higher values are given as this one", default=None, example=85)
    digits: Digits = key("decimals of the sensor", default=2)
    unit: str | None = key("what the numbers are, for `plan`", default=None, example="celsius")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}): swap them")
        return self


@dataclass(frozen=True, slots=True)
class SignalContext:
    """What the maker of a signal may use beside the settings.

    Attributes:
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: when signals begin that are played once or in step, seconds since the epoch.
    """

    folder: Path
    origin_s: float

    def begin_s(self, begin: Literal["hashed", "in_step"]) -> float | None:
        """When all devices begin; None where each begins at a point of its own."""
        return None if begin == "hashed" else self.origin_s


Maker = Callable[[str, Any, SignalContext], Signal]


@dataclass(frozen=True, slots=True)
class SignalKind:
    """One kind of signal.

    Attributes:
        settings: of the scenario.
        make: the signal out of name, settings and context.
        reads_file: it opens a file that the settings name.
        runs_code: it runs that file.
    """

    settings: type[Shape]
    make: Maker
    reads_file: bool = False
    runs_code: bool = False


REGISTERED: Final[dict[str, SignalKind]] = {}
"""Every kind of signal whose module is imported, by its word."""

AnyMaker = TypeVar("AnyMaker", bound=Maker)


def register_signal(
    settings: type[Shape], *, reads_file: bool = False, runs_code: bool = False
) -> Callable[[AnyMaker], AnyMaker]:
    """Make a function the maker of a kind of signal that scenarios can name; a decorator.

    A module of :mod:`simulator.fleet.signals.kinds` is all that a kind needs:
    :mod:`simulator.fleet.signals.registry` imports each of them.

    Args:
        settings: of the scenario; its ``kind`` is a ``Literal`` of one word.
        reads_file: it opens a file that the settings name.
        runs_code: it runs that file.

    Raises:
        ValueError: the word is taken.
    """
    (word,) = get_args(settings.model_fields["kind"].annotation)

    def register(make: AnyMaker) -> AnyMaker:
        if word in REGISTERED:
            raise ValueError(f"two signals are called {word!r}")
        REGISTERED[word] = SignalKind(settings, make, reads_file, runs_code)
        return make

    return register
