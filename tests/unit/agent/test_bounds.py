"""Every collection that lives as long as its process has its bound in docs/bounds.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "bounds.md"
KINDS = frozenset(
    {"dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "ChainMap", "bytearray"}
    | {"Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"}
    | {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary"}
)
LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def name_of(node: ast.expr) -> str:
    """The last part of what is called or named: ``deque`` for ``collections.deque[str]``."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_collection(node: ast.expr | None) -> bool:
    """Whether the expression makes something that can grow."""
    if isinstance(node, LITERALS):
        return True
    if isinstance(node, ast.BoolOp):
        return any(is_collection(value) for value in node.values)
    if isinstance(node, ast.IfExp):
        return is_collection(node.body) or is_collection(node.orelse)
    if not isinstance(node, ast.Call):
        return False
    made = name_of(node.func)
    if made == "field":
        factories = [each.value for each in node.keywords if each.arg == "default_factory"]
        return any(name_of(each) in KINDS or isinstance(each, ast.Lambda) for each in factories)
    return made in KINDS or (made == "fromkeys" and isinstance(node.func, ast.Attribute))


def is_frozen(found: ast.ClassDef) -> bool:
    options = [each for node in found.decorator_list if isinstance(node, ast.Call) for each in node.keywords]
    return any(
        each.arg == "frozen" and isinstance(each.value, ast.Constant) and each.value.value is True for each in options
    )


def targets(node: ast.stmt) -> list[ast.expr]:
    """What is assigned a collection by this statement."""
    if isinstance(node, ast.AnnAssign) and is_collection(node.value):
        return [node.target]
    if not isinstance(node, ast.Assign):
        return []
    found: list[ast.expr] = []
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            found += [each for each, value in pairs if is_collection(value)]
        elif is_collection(node.value):
            found.append(target)
    return found


def collections_in(text: str, module: str) -> Iterator[tuple[str, str]]:
    """``(module.Class, attribute)`` of each collection in a module; ``(module, name)`` of its own."""
    tree = ast.parse(text)
    for node in tree.body:
        names = [each.id for each in targets(node) if isinstance(each, ast.Name)]
        yield from ((module, name) for name in names if name.upper() != name and not name.startswith("__"))
    for found in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(found):
            for target in targets(node) if isinstance(node, ast.stmt) else ():
                is_own = isinstance(target, ast.Attribute) and name_of(target.value) == "self"
                is_field = isinstance(target, ast.Name) and node in found.body and not is_frozen(found)
                if is_own or (is_field and name_of(target).upper() != name_of(target)):
                    yield f"{module}.{found.name}", name_of(target)


def in_the_code() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for package in ("agent", "gateway"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("agent.")
            found |= set(collections_in(path.read_text("utf-8"), module))
    return found


def rows() -> Iterator[tuple[list[str], list[str], str]]:
    """First column's names, second column's names, last column of each row of the page's tables."""
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+)`", cells[0]), re.findall(r"`([^`]+)`", cells[1]), cells[-1]


def test_every_collection_that_lives_as_long_as_its_process_has_a_bound():
    table = list(rows())
    bounded = {(owners[0], name) for owners, names, _ in table for name in names}
    short_lived = tuple(owner for owners, names, _ in table if not names for owner in owners)
    found = {
        (owner, name)
        for owner, name in in_the_code()
        if not any(owner == each or owner.startswith(f"{each}.") for each in short_lived)
    }
    assert sorted(found - bounded) == [], f"bound these, and say in {PAGE.name} by what"
    assert sorted(bounded - found) == [], f"these are not there any more: take them out of {PAGE.name}"
    assert all(bound for _, _, bound in table)


def test_short_lived_ones_are_in_the_code():
    code = in_the_code()
    for owners, names, _ in rows():
        for owner in owners if not names else ():
            assert any(found == owner or found.startswith(f"{owner}.") for found, _ in code), owner


def test_the_search_finds_every_kind_of_collection():
    text = """
import collections
from queue import SimpleQueue

LIMITS = {"a": 1}
_seen = set()

class Keeper:
    shared: list[str] = []

    def __init__(self, given):
        self._plain = {}
        self._copied = dict(given)
        self._bounded: collections.deque[int] = collections.deque(maxlen=3)
        self._generic = SimpleQueue[int]()
        self._either = given or []
        self._one, self._two = 1, []
        self.number = 1
        local = {}

@dataclass(slots=True)
class Grows:
    made: dict[str, int] = field(default_factory=dict)

@dataclass(frozen=True, slots=True)
class Value:
    made: dict[str, int] = field(default_factory=dict)
"""
    assert sorted(collections_in(text, "m")) == [
        ("m", "_seen"),
        ("m.Grows", "made"),
        *(("m.Keeper", name) for name in ("_bounded", "_copied", "_either", "_generic", "_plain", "_two", "shared")),
    ]


def test_no_parser_keeps_the_strings_of_what_it_parses() -> None:
    """By default pydantic-core keeps 16,384 of them: ids and times that never come again fill it for an hour."""
    loose = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ("agent", "gateway")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and name_of(node.func) == "from_json"
        if not any(each.arg == "cache_strings" for each in node.keywords)
    ]
    assert not loose, f"from_json without cache_strings: {loose}"
