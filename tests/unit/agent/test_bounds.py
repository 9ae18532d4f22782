"""Every collection that lives as long as its process has its bound in docs/bounds.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source_search import ROOT, collections_in, name_of, trees

PAGE = ROOT / "docs" / "bounds.md"


def in_the_code() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path, tree in trees("agent", "gateway"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("agent.")
        found |= {(f"{module}.{owner}" if owner else module, name) for owner, name in collections_in(tree)}
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


def test_no_parser_keeps_the_strings_of_what_it_parses() -> None:
    """By default pydantic-core keeps 16,384 of them: ids and times that never come again fill it for an hour."""
    loose = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees("agent", "gateway")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "from_json"
        if not any(each.arg == "cache_strings" for each in node.keywords)
    ]
    assert not loose, f"from_json without cache_strings: {loose}"
