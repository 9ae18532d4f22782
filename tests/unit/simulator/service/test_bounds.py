"""Every collection that lives as long as the service has its bound, or why it needs none, in docs/service.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import simulator.service
from agent.wire import paths
from simulator.service import waiting
from simulator.service.answers import Answer
from simulator.service.passwords import Attempts
from simulator.service.routes import sensor_data
from simulator.service.waiting import CachedPoll, PollCache

PACKAGE = Path(simulator.service.__file__).parent
DOCUMENT = PACKAGE.parent.parent / "docs" / "service.md"
COLLECTIONS = {
    *("dict", "list", "set", "bytearray", "deque", "OrderedDict", "Counter", "defaultdict", "WeakSet"),
    *("Queue", "SimpleQueue", "PriorityQueue", "LifoQueue", "ThreadPoolExecutor"),
}
CACHES = {"cache", "lru_cache"}
OF_ONE_REQUEST = {
    *(
        "Exchange.ids",
        "Exchange.asked",
        "Exchange.headers",
        "Exchange.numbers",
        "Reply.headers",
        "Capture._parts",
        "CorkedTransport._held",
        "Inbox._kept",
        "Sending._body",
        "RequestFacts.headers",
        "RequestFacts.ids",
    ),
    *("RuntimeFilter.data", "_Firing.changed", "_States.moved", "Schemas._found", "Schemas.components"),
}
"""Gone with the request, the connection's turn, the transaction or the call that they belong to."""
NEVER_ADDED_TO = {"__all__"}


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_collection(value: ast.expr | None) -> bool:
    if isinstance(value, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)):
        return True
    return isinstance(value, ast.Call) and _name(value.func) in COLLECTIONS | CACHES


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.AnnAssign):
        return [(node.target, node.value)]
    if isinstance(node, ast.Assign):
        # a, b = c, {} as well
        pairs = []
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += list(zip(target.elts, node.value.elts, strict=True))
            else:
                pairs.append((target, node.value))
        return pairs
    return []


def _of_module(module: ast.Module) -> set[str]:
    found = {
        node.name
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and any(_name(decorator) in CACHES for decorator in node.decorator_list)
    }
    for node in module.body:
        # A constant is none: what is Final and spelt out is not added to.
        is_final = isinstance(node, ast.AnnAssign) and _name(node.annotation) == "Final"
        for target, value in _assigned(node):
            is_cache = isinstance(value, ast.Call) and _name(value.func) in CACHES
            if _is_collection(value) and (is_cache or not is_final):
                found.add(_name(target))
    return found


def _of_class(node: ast.ClassDef) -> set[str]:
    found = set()
    for inner in ast.walk(node):
        for target, value in _assigned(inner):
            of_self = isinstance(target, ast.Attribute) and _name(target.value) == "self"
            if of_self and _is_collection(value):
                found.add(_name(target))
    for inner in node.body:
        for target, value in _assigned(inner):
            words = value.keywords if isinstance(value, ast.Call) else ()
            has_factory = any(word.arg == "default_factory" and _name(word.value) in COLLECTIONS for word in words)
            if has_factory or _is_collection(value):
                found.add(_name(target))
    return {f"{node.name}.{attribute}" for attribute in found}


def collections_in(source: str) -> set[str]:
    """``Class.attribute`` of each collection that an object holds; functions and names of modules that keep some."""
    module = ast.parse(source)
    classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    return _of_module(module).union(*(_of_class(node) for node in classes))


def test_the_search_finds_every_way_in_which_a_collection_is_held():
    source = """
KNOWN: Final = {"a": 1}
MEMORY = {}
looked_up = functools.lru_cache(maxsize=3)(look_up)
@cache
def page(): ...
class Kept:
    shared = []
    members: list[int] = field(default_factory=list)
    def __init__(self):
        self._a: dict[int, str] = {}
        self._b = OrderedDict()
        self._c, self.d = queue.SimpleQueue(), Counter[int]()
        self.number = 3
"""
    own = {"Kept.shared", "Kept.members", "Kept._a", "Kept._b", "Kept._c", "Kept.d"}
    assert collections_in(source) == own | {"MEMORY", "looked_up", "page"}


def test_each_collection_of_the_service_has_its_bound_in_the_document():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if "migrations" not in path.parts:
            found |= collections_in(path.read_text(encoding="utf-8"))
    section = DOCUMENT.read_text(encoding="utf-8").partition("### What lives as long as the service")[2]
    rows = re.findall(r"^\| (`.*?) \| (.+?) \|$", section.partition("\n## ")[0], re.MULTILINE)
    written = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
    missing = found - OF_ONE_REQUEST - NEVER_ADDED_TO - written
    assert missing == set(), "write its bound, or why it needs none, into docs/service.md"
    assert written - found == set(), "docs/service.md names what is not there any more"
    assert found >= OF_ONE_REQUEST


def _answer(size: int) -> Answer:
    return Answer(200, b"x" * size, ((b"etag", b'"1"'),))


def test_kept_polls_are_bounded_in_bytes_and_the_first_goes(monkeypatch):
    monkeypatch.setattr(waiting, "CACHED_BYTES", 100)
    polls = PollCache()
    for seq in range(4):
        polls.keep(1, f"d{seq}", CachedPoll(seq, _answer(40)))
    assert [polls.find(1, f"d{seq}", 0) is not None for seq in range(4)] == [False, False, True, True]
    polls.keep(1, "d2", CachedPoll(2, _answer(10)))  # the same device again, with less
    polls.keep(1, "d5", CachedPoll(5, _answer(40)))
    assert [polls.find(1, f"d{seq}", 0) is not None for seq in (2, 3, 5)] == [True, True, True]
    polls.keep(1, "d6", CachedPoll(6, _answer(101)))  # more than all of them may have
    assert not any(polls.find(1, f"d{seq}", 0) for seq in range(7))
    polls.keep(1, "d7", CachedPoll(7, _answer(100)))
    assert polls.find(1, "d7", 0) is not None
    polls.clear()
    polls.keep(1, "d8", CachedPoll(8, _answer(100)))
    assert polls.find(1, "d8", 0) is not None


def test_of_an_email_of_any_length_as_little_is_kept_as_of_a_short_one():
    attempts = Attempts()
    for n in range(3):
        attempts.begin(f"{n}" * 200_000 + "\ud800", "10.0.0.1", 0)
    assert max(len(key) for key in attempts._windows) < 100
    assert len(attempts._windows) == 4


def test_of_a_long_device_id_nothing_is_kept():
    before = sensor_data._known_segment.cache_info().currsize
    long = "ä/" * 100_000
    assert sensor_data._segment(long) == paths.segment(long)
    assert sensor_data._known_segment.cache_info().currsize == before
    assert sensor_data._segment("a/b") == paths.segment("a/b")
