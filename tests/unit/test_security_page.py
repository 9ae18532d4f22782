"""docs/security.md says what is proven by which test: each test that it names exists."""

from __future__ import annotations

import re

import pytest

from tests.source_search import ROOT, defined_in

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"tests/[\w./]+\.py(?:::\w+)*", PAGE)))


def fault_of(named: str) -> str | None:
    """Why this is not a test of ours."""
    name, *functions = named.split("::")
    path = ROOT / name
    if not path.is_file():
        return f"{name} does not exist"
    missing = set(functions) - defined_in(path)
    return f"{name} has no {min(missing)}" if missing else None


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_the_page_names_exists(named):
    assert fault_of(named) is None


def test_a_test_that_does_not_exist_is_noticed():
    assert fault_of("tests/unit/test_nowhere.py") == "tests/unit/test_nowhere.py does not exist"
    assert fault_of("tests/unit/test_security_page.py::test_of_nothing")
    assert fault_of("tests/unit/test_security_page.py::test_a_test_that_does_not_exist_is_noticed") is None


def rows_of(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("heading", ["ETSI EN 303 645", "EU Cyber Resilience Act"])
def test_what_is_met_names_what_meets_it(heading):
    rows = rows_of(heading)
    assert len(rows) >= 20
    assert {state for _, state, _ in rows} <= {"met", "partly", "missing", "yours", "not applicable"}
    assert [what for what, state, by in rows if state == "met" and not by] == []
    assert [what for what, state, by in rows if state == "missing" and not by] == []
