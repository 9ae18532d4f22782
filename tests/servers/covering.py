"""The cases of the contract suite: every single choice of a server, and a covering array of all pairs of choices."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allpairspy import AllPairs

from simulator.service.profiles.model import AXES, PROFILES, ServerProfile, values_of

Axes = tuple[tuple[str, Any], ...]

BASES: Final = ("plain", "complete")


@dataclass(frozen=True, slots=True)
class Case:
    """One server.

    Attributes:
        base: name of the profile that it is a change of.
        axes: (axis, value) of each choice that is made otherwise, in the order of the axes.
        elsewhere: ``next`` where links in answers lead to another host, ``redirect`` where some answers do.
        name: short, for a case of many choices; empty where the choices themselves are short enough.
    """

    base: str
    axes: Axes = ()
    elsewhere: str = ""
    name: str = ""

    @property
    def profile(self) -> ServerProfile:
        """The whole server."""
        return PROFILES[self.base].model_copy(update=dict(self.axes))

    @property
    def id(self) -> str:
        """Stable and short: ``plain+id_name=_id``, or the name."""
        return self.name or self.text

    @property
    def text(self) -> str:
        """All choices that differ from the base."""
        changes = [f"{axis}={text_of(value)}" for axis, value in self.axes]
        return "+".join([self.base, *changes, *([f"elsewhere={self.elsewhere}"] if self.elsewhere else [])])

    @property
    def choices(self) -> Mapping[str, Any]:
        """Every axis with its value."""
        profile = self.profile
        return {axis: getattr(profile, axis) for axis in AXES}


def case_of(profile: ServerProfile, name: str = "") -> Case:
    """The case of a whole profile, written as changes of the plain server."""
    plain = PROFILES["plain"]
    changes = ((axis, getattr(profile, axis)) for axis in AXES)
    axes = tuple((axis, value) for axis, value in changes if value != getattr(plain, axis))
    return Case("plain", axes, name=name)


def single_choices(bases: Iterable[str] = BASES) -> tuple[Case, ...]:
    """Each base as it is, and with each of its choices made in each other way; where a link or a redirect leads out."""
    found = []
    for base in bases:
        found.append(Case(base))
        for axis in AXES:
            default = getattr(PROFILES[base], axis)
            found += [Case(base, ((axis, value),)) for value in values_of(axis) if value != default]
    found.append(Case("plain", elsewhere="redirect"))
    for paging in ("next_url", "links_next", "link_header"):
        found.append(Case("plain", (("paging", paging), ("page_size", 1)), "next"))
    return tuple(case for case in found if is_possible(case.choices))


@functools.cache
def all_pairs() -> tuple[Case, ...]:
    """Rows in which every two choices that can be made together are made together at least once."""
    return tuple(_pairs())


@functools.cache
def core_set() -> tuple[Case, ...]:
    """The first rows of :func:`all_pairs`, up to the one with which every value of every axis has been met."""
    missing = {(axis, value) for axis in AXES for value in values_of(axis)}
    chosen: list[Case] = []
    for case in _pairs():
        chosen.append(case)
        missing -= case.choices.items()
        if not missing:
            break
    return tuple(chosen)


def _pairs() -> Iterator[Case]:
    for number, row in enumerate(covering_rows({axis: values_of(axis) for axis in AXES})):
        yield case_of(ServerProfile(**row), f"pairs-{number:03d}")


def covering_rows(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """A covering array of strength 2, row by row; the same for the same axes.

    Args:
        axes: name -> values, two axes or more.
    """
    names = tuple(axes)

    def fits(row: Sequence[Any]) -> bool:
        return is_possible(dict(zip(names, row, strict=False)))

    drawn = AllPairs([list(values) for values in axes.values()], filter_func=fits)
    return (dict(zip(names, row, strict=True)) for row in drawn)


def is_possible(choices: Mapping[str, Any]) -> bool:
    """Whether these choices, of some or of all axes, go together; each rule needs all of its axes to say no."""
    return not any(_all(choices, rule) for rule in _IMPOSSIBLE)


_IMPOSSIBLE: Final[tuple[Mapping[str, tuple[Any, ...]], ...]] = (
    # One page holds all: there is no size of it.
    {"paging": ("none",), "page_size": (1, 5)},
)
"""Choices that are never made together: axis -> values, all of which have to be met."""


def _all(choices: Mapping[str, Any], rule: Mapping[str, tuple[Any, ...]]) -> bool:
    return all(axis in choices and choices[axis] in values for axis, values in rule.items())


def text_of(value: Any) -> str:
    """A value of an axis, as one word."""
    return ("&".join(value) or "none") if isinstance(value, tuple) else str(value)
