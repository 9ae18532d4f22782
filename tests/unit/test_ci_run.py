"""The build installs whatever its tests need of the system: a machine where somebody did that by hand would hide it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source_search import ROOT, name_of, trees

OF_EVERY_DEBIAN = {"mount", "dpkg"}
UNLESS_THERE = {"nodejs", "npm"}  # a machine that has one of its own keeps it
BROUGHT_BY = {"umount": "mount"}


def test_whatever_program_a_test_needs_is_installed_by_the_build():
    listed = (ROOT / ".ci" / "run").read_text(encoding="utf-8").partition("PACKAGES=(")[2].partition("\n)")[0]
    names = {name for line in re.findall(r"^    ([^#\n]*)", listed, re.MULTILINE) for name in line.split()}
    wanted = set(_packages_of_tests())
    assert len(wanted) > 10
    assert wanted - names - OF_EVERY_DEBIAN - UNLESS_THERE == set(), "add them to PACKAGES in .ci/run"


def _packages_of_tests() -> Iterator[str]:
    """What calls of ``require_program`` name: the package, or a program that is called like its own."""
    for _, tree in trees("tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name_of(node.func) == "require_program":
                words = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                if words and words[0] != "no-such-program":
                    yield BROUGHT_BY.get(words[-1], words[-1])
