"""A loop whose time jumps to the next appointment, and the fleet's modules with its clock instead of the machine's.

Random numbers and ids are the same in every run, too: two runs differ only by what their scenarios say.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import selectors
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from simulator.fleet.metrics.health import boot_time

START_S = 1000.0
EPOCH_S = 1_767_225_600.0
"""2026-01-01; what the wall clock shows when the monotonic one shows ``START_S``."""
_MONOTONIC, _WALL = time.monotonic, time.time


class Time:
    """Both clocks.

    Attributes:
        now_s: what the monotonic one shows.
    """

    def __init__(self) -> None:
        self.now_s = START_S

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return EPOCH_S + self.now_s - START_S


class _Selector(selectors.SelectSelector):
    """Waits for nothing: what would have been waited is added to the time."""

    def __init__(self, clock: Time) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise AssertionError("nothing will ever happen: the loop waits without an appointment")
        self._clock.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on :class:`Time`."""

    def __init__(self, clock: Time) -> None:
        super().__init__(_Selector(clock))
        self._virtual = clock
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now_s


@contextmanager
def virtual_time(clock: Time) -> Iterator[None]:
    """Every module of the program gets the virtual time, and the same ids, while the block lasts."""
    numbers = itertools.count(1)
    fakes: dict[Any, Callable[[], Any]] = {
        time.monotonic: clock.monotonic,
        time.time: clock.time,
        boot_time: clock.monotonic,
        uuid.uuid4: lambda: uuid.UUID(int=next(numbers) << 64, version=4),
    }
    random.seed(1)
    changes: list[Callable[[], None]] = []
    imported = set(sys.modules)
    for module in [module for name, module in sys.modules.items() if name.startswith(("simulator.", "agent."))]:
        names, functions = _clocks_of(module)
        changes += [_replace(vars(module), name, fakes) for name in names if _is_clock(vars(module).get(name))]
        for function in functions:
            changes += _replace_defaults(function, fakes)
    try:
        with patch("time.monotonic", clock.monotonic), patch("time.time", clock.time):
            yield
    finally:
        for undo in changes:
            undo()
        for module in [module for name, module in sys.modules.items() if name not in imported]:
            for name, value in list(vars(module).items()):  # what was imported meanwhile took the virtual clocks
                if getattr(value, "__self__", None) is clock:
                    setattr(module, name, _MONOTONIC if value == clock.monotonic else _WALL)


def _is_clock(value: Any) -> bool:
    return any(value is each for each in (_MONOTONIC, _WALL, boot_time, uuid.uuid4))


@functools.cache
def _clocks_of(module: types.ModuleType) -> tuple[list[str], list[types.FunctionType]]:
    """The names of a module that are a clock, and its functions that have one as a default; looked for once."""
    there = list(vars(module).items())
    functions = [function for _, value in there for function in _functions(value, module.__name__)]
    return [name for name, value in there if _is_clock(value)], [each for each in functions if _has_clock(each)]


def _has_clock(function: types.FunctionType) -> bool:
    return any(map(_is_clock, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())))


def _functions(value: Any, module: str) -> Iterator[types.FunctionType]:
    if isinstance(value, types.FunctionType) and value.__module__ == module:
        yield value
    elif isinstance(value, type) and value.__module__ == module:
        yield from (each for each in vars(value).values() if isinstance(each, types.FunctionType))


def _replace(names: dict[str, Any], name: str, fakes: dict[Any, Any]) -> Callable[[], None]:
    real, names[name] = names[name], fakes[names[name]]
    return lambda: names.__setitem__(name, real)


def _replace_defaults(function: types.FunctionType, fakes: dict[Any, Any]) -> Iterator[Callable[[], None]]:
    defaults, named = function.__defaults__, function.__kwdefaults__
    if defaults and any(map(_is_clock, defaults)):
        function.__defaults__ = tuple(fakes[each] if _is_clock(each) else each for each in defaults)
        yield lambda: setattr(function, "__defaults__", defaults)
    if named and any(map(_is_clock, named.values())):
        function.__kwdefaults__ = {key: fakes[each] if _is_clock(each) else each for key, each in named.items()}
        yield lambda: setattr(function, "__kwdefaults__", named)
