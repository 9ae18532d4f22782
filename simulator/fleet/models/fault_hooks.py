"""What a fault does to a device, seen from the device: four hooks that it may implement.

Every hook is a pure function of the device, the true time and what would be there without the fault; a hook that has
nothing to do gives back what it got. Times are seconds since the epoch. Whoever runs a device asks an
:class:`ActiveFaults`, which asks only those faults that use the hook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from simulator.fleet.models.condition import Condition
from simulator.fleet.signals.base import Individual

Values = Mapping[str, float]
Read = Callable[[float], Values]
"""What the device's sensors read at another time, without any fault."""


class Hook(StrEnum):
    """The hooks that a fault may implement: methods of :class:`FaultHooks`."""

    CONDITION = "condition"
    VALUES = "values"
    HELD = "held_until"
    BODIES = "bodies"


@dataclass(frozen=True, slots=True)
class Body:
    """One request body that goes out.

    Attributes:
        content: the bytes, JSON or not.
        delay_s: how much later it goes out than it would.
        same_key: of a copy, which nobody waits for: it has the idempotency key of the first; else a key of its own.
    """

    content: bytes
    delay_s: float = 0.0
    same_key: bool = True


class FaultHooks:
    """One fault, seen from the device: a hook that a class does not implement changes nothing, and is never called.

    Attributes:
        hooks: those that it implements.
    """

    hooks: ClassVar[frozenset[Hook]] = frozenset()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.hooks = frozenset(hook for hook in Hook if getattr(cls, hook) is not getattr(FaultHooks, hook))

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The condition with the fault; its ``until_s`` ends where the fault begins, ends or does something else."""
        return condition

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """What is read instead of ``values``; finite numbers."""
        return values

    def held_until(self, device: Individual, time_s: float, until_s: float) -> float:
        """Nothing is handed over before this time; commands still are asked for."""
        return until_s

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """What goes out instead of one body of readings: at least one; the first is the one that is waited for."""
        return (body,)


class ActiveFaults:
    """All faults of a run, by hook.

    Args:
        faults: in the order in which they are applied.
    """

    __slots__ = ("_by_hook",)

    def __init__(self, faults: Iterable[FaultHooks] = ()) -> None:
        faults = tuple(faults)
        self._by_hook = {hook: tuple(fault for fault in faults if hook in fault.hooks) for hook in Hook}

    def any(self, hook: Hook) -> bool:
        """Whether some fault uses this hook: else it need not be called at all."""
        return bool(self._by_hook[hook])

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The condition with the fault; its ``until_s`` ends where the fault begins, ends or does something else."""
        for fault in self._by_hook[Hook.CONDITION]:
            condition = fault.condition(device, time_s, condition)
        return condition

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """What is read instead of ``values``; finite numbers. See :meth:`FaultHooks.values`."""
        for fault in self._by_hook[Hook.VALUES]:
            values = fault.values(device, time_s, values, read)
        return values

    def held_until(self, device: Individual, time_s: float) -> float:
        """Nothing is handed over before; in the past where nothing is held."""
        until_s = -math.inf
        for fault in self._by_hook[Hook.HELD]:
            until_s = fault.held_until(device, time_s, until_s)
        return until_s

    def bodies(self, device: Individual, time_s: float, content: bytes) -> Sequence[Body]:
        """What goes out instead of these bytes; see :meth:`FaultHooks.bodies`."""
        bodies: Sequence[Body] = (Body(content),)
        for fault in self._by_hook[Hook.BODIES]:
            bodies = [*fault.bodies(device, time_s, bodies[0]), *bodies[1:]]
        first = bodies[0]
        # Whatever came after the fault that made them: copies are copies of what goes out.
        return [first, *(replace(copy, content=first.content) for copy in bodies[1:])]


NO_FAULTS: Final = ActiveFaults()
"""A run without faults."""
