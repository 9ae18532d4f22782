"""Which tests begin first: the longest ones, so that no test process is left alone with one of them at the end.

With ``--dist worksteal`` each of n processes is given a piece of the list in turn, 1/n of it, and takes from another
one once it has nothing left. So the long ones are dealt out to the beginnings of these pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

# Longest first, by the time on a quiet machine. Whole modules: their tests share what is dear to make.
LONGEST = (
    "tests/fault/test_kills.py",
    "tests/e2e/test_systemd.py",
    "tests/e2e/test_gateway_quota.py",
    "tests/fault/test_network_faults.py",
    "tests/contract/test_openapi_fuzz.py",
    "tests/e2e/test_service_program.py",
    "tests/e2e/test_demo.py",
    "tests/fault/test_gateway_chaos.py",
    "tests/fault/test_power_cuts.py",
    "tests/fault/test_disk_faults.py",
    "tests/fault/test_verdict.py",
    "tests/unit/agent/runtime/test_long_outage.py",
    "tests/fault/test_fleet_after_outage.py",
)


def longest_first(items: list[pytest.Item], root: Path, processes: int) -> None:
    """Deal the tests of the longest modules out to the beginnings of the processes' pieces.

    Args:
        items: all tests; they are put in order in place, the same for each process of a run.
        root: what the names of the modules are relative to.
        processes: how many share the list.
    """
    long: dict[str, list[pytest.Item]] = {name: [] for name in LONGEST}
    others = []
    for item in items:
        long.get(item.path.relative_to(root).as_posix(), others).append(item)
    heads = deal([module for module in long.values() if module], processes)
    # As the scheduler cuts it: each of those that are left gets its share of what is left.
    ordered: list[pytest.Item] = []
    for number, head in enumerate(heads):
        piece = (len(items) - len(ordered)) // (processes - number)
        cut = max(0, piece - len(head))
        ordered += [*head, *others[:cut]]
        del others[:cut]
    items[:] = [*ordered, *others]


def deal(modules: Sequence[list[pytest.Item]], hands: int) -> list[list[pytest.Item]]:
    """One module to each hand in turn, forth and back, so that the hand with the longest gets the shortest as well."""
    dealt: list[list[pytest.Item]] = [[] for _ in range(hands)]
    turns = [*range(hands), *reversed(range(hands))]
    for number, module in enumerate(modules):
        dealt[turns[number % len(turns)]] += module
    return dealt
