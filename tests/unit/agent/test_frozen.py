"""Frozen values behave as the library's dataclasses do; only their methods are shared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
from dataclasses import field
from pathlib import Path

import pytest

from agent.frozen import dataclass

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Ours:
    name: str
    size_bytes: int = 3
    tags: list[str] = field(default_factory=list)
    unseen: int = field(default=0, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    name: str
    size_bytes: int = 3
    tags: list[str] = field(default_factory=list)
    unseen: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Wider(Ours):
    more: int = 0

    def __post_init__(self):
        if self.more < 0:
            raise ValueError("more must not be negative")


@dataclass(frozen=True, slots=True)
class Own:
    secret: str

    def __repr__(self):
        return "Own(***)"


def test_it_is_made_as_the_librarys_is():
    for arguments, named in [(("a",), {}), (("a", 4), {"unseen": 5}), ((), {"name": "a", "tags": ["b"]})]:
        ours, theirs = Ours(*arguments, **named), Theirs(*arguments, **named)
        assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert Ours("a").tags is not Ours("a").tags


@pytest.mark.parametrize(("arguments", "named"), [((), {}), (("a", 1, [], 0, 9), {}), (("a",), {"nothing": 1})])
def test_wrong_arguments_are_told_as_the_library_tells_them(arguments, named):
    faults = []
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError) as fault:
            kind(*arguments, **named)
        faults.append(str(fault.value).replace(kind.__name__, ""))
    assert faults[0] == faults[1]


def test_it_cannot_be_changed():
    value = Ours("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.new = 1
    assert not hasattr(value, "__dict__")


def test_equal_values_are_equal_and_hash_alike_within_one_class():
    assert Ours("a", unseen=1) == Ours("a", unseen=2)
    assert Ours("a") != Ours("b")
    assert Ours("a") != Theirs("a")
    assert Ours("a") != Wider("a")
    assert hash(Ours("a", tags=())) == hash(Ours("a", tags=(), unseen=1))
    assert len({Ours("a", tags=()), Ours("a", tags=()), Ours("b", tags=())}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a"))


def test_the_librarys_functions_and_copies_work():
    value = Wider("a", 1, more=2)
    assert dataclasses.replace(value, more=3) == Wider("a", 1, more=3)
    assert [each.name for each in dataclasses.fields(Wider)] == ["name", "size_bytes", "tags", "unseen", "more"]
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own
    with pytest.raises(ValueError, match="more must not be negative"):
        dataclasses.replace(value, more=-1)


def test_what_a_class_defines_itself_stays():
    assert repr(Own("x")) == "Own(***)"
    assert Own("x") == Own("x")


def test_a_field_without_a_default_does_not_come_after_one_with():
    with pytest.raises(SyntaxError):

        @dataclass(frozen=True, slots=True)
        class _Wrong:
            first: int = 0
            second: int


def test_the_agent_makes_its_values_with_it():
    """Helper and installer run as root and stand on the standard library."""
    command = ["git", "grep", "-lE", "^from dataclasses import .*\\bdataclass\\b", "--", "agent", "gateway"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in found if not name.startswith(("agent/helper/", "agent/release/"))] == []


@pytest.mark.parametrize("unusual", [{"init": False}, {"kw_only": True}])
def test_what_its_init_does_not_know_is_refused_when_the_class_is_made(unusual):
    with pytest.raises(TypeError, match="Odd.late: init=False and kw_only need"):

        @dataclass(frozen=True, slots=True)
        class Odd:
            late: int = field(default=0, **unusual)
