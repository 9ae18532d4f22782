"""The states of a Markov chain, shown as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simulator.fleet.settings import Seconds, Section, key
from simulator.fleet.signals.base import Individual, Signal
from simulator.fleet.signals.chain import STATES_MAX, Chain, ChainState, StateName, check_ways
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class MarkovState(Section):
    """One state of a Markov chain."""

    value: float = key("what the reading shows in this state")
    stay_s: Seconds = key("how long the chain stays on average", unit="s")
    stay: Literal["exponential", "fixed"] = key(
        "`exponential`: hashed lengths around `stay_s`; `fixed`: exactly so long",
        default="exponential",
    )
    next: dict[StateName, Annotated[float, Field(gt=0)]] = key(
        "where it goes from here: weights; without it, to any other state alike", default_factory=dict
    )


class MarkovSettings(Shape):
    """A chain of states with hashed lengths, such as a door that is open or shut."""

    kind: Literal["markov"]
    states: dict[StateName, MarkovState] = key("the states by name", min_length=2, max_length=STATES_MAX)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        check_ways({name: state.next for name, state in self.states.items()})
        return self


class Markov:
    """Shows the state of a chain as a number.

    Args:
        name: another one gives another chance on the same device.
        states: of the chain.
        values: what is shown in each.
    """

    __slots__ = ("_chain", "_values")

    def __init__(self, name: str, states: Mapping[str, ChainState], values: Mapping[str, float]) -> None:
        self._chain = Chain(name, states)
        self._values = dict(values)

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self._values[self._chain.interval_at(device, time_s).state]


@register_signal(MarkovSettings)
def make_signal(name: str, settings: MarkovSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    states = {
        state: ChainState(described.stay_s, described.stay == "fixed", described.next)
        for state, described in settings.states.items()
    }
    return Markov(name, states, {state: described.value for state, described in settings.states.items()})
