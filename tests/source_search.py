"""What a module's source has, for tests of rules that the code keeps: names, and collections that may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = frozenset(
    {"dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "ChainMap", "bytearray"}
    | {"Queue", "SimpleQueue", "LifoQueue", "PriorityQueue", "ThreadPoolExecutor"}
    | {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary"}
)
CACHES = frozenset({"cache", "lru_cache"})
LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def trees(*rooms: str) -> Iterator[tuple[Path, ast.Module]]:
    """Every module of these folders, or files, below the project's; one tree in memory at a time."""
    for room in rooms:
        place = ROOT / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def name_of(node: ast.expr) -> str:
    """The last part of what is called or named: ``deque`` for ``collections.deque[str](...)``."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def defined_in(path: Path) -> set[str]:
    """The functions, methods and classes of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def collections_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class and attribute of each collection that an object or a class holds; ``""`` and name of a module's own.

    A constant, Final and in capitals, is never added to; nor is what a frozen value holds.
    """
    for node in tree.body:
        yield from (("", name_of(each)) for each in _grown(node) if not name_of(each).startswith("__"))
    for found in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(found):
            for target in _grown(node):
                is_own = isinstance(target, ast.Attribute) and name_of(target.value) == "self"
                is_field = isinstance(target, ast.Name) and node in found.body and not _is_frozen(found)
                if is_own or is_field:
                    yield found.name, name_of(target)


def caches_in(tree: ast.Module) -> set[str]:
    """The functions of a module that are decorated to keep what they returned."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(name_of(decorator) in CACHES for decorator in node.decorator_list)
    }


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.AnnAssign):
        return [(node.target, node.value)]
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):  # a, b = c, {} as well
            pairs += zip(target.elts, node.value.elts, strict=True)
        else:
            pairs.append((target, node.value))
    return pairs


def _grown(node: ast.AST) -> list[ast.expr]:
    """What this statement assigns a collection that can grow."""
    is_final = isinstance(node, ast.AnnAssign) and name_of(node.annotation) == "Final"
    found = [target for target, value in _assigned(node) if _is_collection(value)]
    return [target for target in found if not (is_final and name_of(target).isupper())]


def _is_collection(node: ast.expr | None) -> bool:
    """Whether the expression makes something that can grow."""
    if isinstance(node, LITERALS):
        return True
    if isinstance(node, ast.BoolOp):
        return any(_is_collection(value) for value in node.values)
    if isinstance(node, ast.IfExp):
        return _is_collection(node.body) or _is_collection(node.orelse)
    if not isinstance(node, ast.Call):
        return False
    made = name_of(node.func)
    if made == "field":
        factories = [each.value for each in node.keywords if each.arg == "default_factory"]
        return any(name_of(each) in KINDS or isinstance(each, ast.Lambda) for each in factories)
    return made in KINDS | CACHES or (made == "fromkeys" and isinstance(node.func, ast.Attribute))


def _is_frozen(found: ast.ClassDef) -> bool:
    options = [each for node in found.decorator_list if isinstance(node, ast.Call) for each in node.keywords]
    return any(
        each.arg == "frozen" and isinstance(each.value, ast.Constant) and each.value.value is True for each in options
    )
