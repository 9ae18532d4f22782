"""The search through the sources finds what the tests of rules look for."""

from __future__ import annotations

import ast

from tests.source_search import caches_in, collections_in

SOURCE = """
import collections
from queue import SimpleQueue

LIMITS: Final = {"a": 1}
MEMORY = {}
_seen: Final = set()
looked_up = functools.lru_cache(maxsize=3)(look_up)

@cache
def page(): ...

class Keeper:
    shared: list[str] = []
    KNOWN: Final = {"a": 1}

    def __init__(self, given):
        self._plain = {}
        self._copied = dict(given)
        self._bounded: collections.deque[int] = collections.deque(maxlen=3)
        self._generic = SimpleQueue[int]()
        self._either = given or []
        self._one, self._two = 1, []
        self._find = functools.lru_cache(maxsize=3)(find)
        self.number = 1
        local = {}

@dataclass(slots=True)
class Grows:
    made: dict[str, int] = field(default_factory=dict)

@dataclass(frozen=True, slots=True)
class Value:
    made: dict[str, int] = field(default_factory=dict)
"""


def test_every_way_in_which_a_collection_is_held_is_found():
    own = ("_bounded", "_copied", "_either", "_find", "_generic", "_plain", "_two", "shared")
    assert sorted(collections_in(ast.parse(SOURCE))) == [
        *(("", name) for name in ("MEMORY", "_seen", "looked_up")),
        ("Grows", "made"),
        *(("Keeper", name) for name in own),
    ]


def test_functions_that_keep_what_they_returned_are_found():
    assert caches_in(ast.parse(SOURCE)) == {"page"}
