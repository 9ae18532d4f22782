"""Which tests begin first: the longest ones, so that no test process is left alone with one of them at the end.

With ``--dist worksteal`` each of n processes is given a piece of the list in turn, 1/n of it, and takes from another
one once it has nothing left. So the long ones are dealt out to the beginnings of these pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

# Seconds on a quiet machine. Whole modules: their tests share what is dear to make. Beside the longest all those that
# mostly wait: at the end of a run there shall be small pieces of work, which keep every core busy to the last second.
LONGEST = {
    "tests/e2e/test_systemd.py": 170,
    "tests/e2e/test_gateway_quota.py": 92,
    "tests/fault/test_network_faults.py": 90,
    "tests/fault/test_kills.py": 75,
    "tests/e2e/test_demo.py": 70,
    "tests/e2e/test_service_program.py": 65,
    "tests/e2e/test_fleet_run.py": 55,
    "tests/servers/test_consumers.py": 60,
    "tests/fault/test_power_cuts.py": 40,
    "tests/contract/test_openapi_fuzz.py": 35,
    "tests/fault/test_disk_faults.py": 33,
    "tests/unit/agent/runtime/test_long_outage.py": 33,
    "tests/damage/test_fleet_damage.py": 60,
    "tests/damage/test_demo_damage.py": 45,
    "tests/damage/test_onboarding_damage.py": 25,
    "tests/e2e/test_watched_threads.py": 40,
    "tests/e2e/test_fleet_up.py": 30,
    "tests/e2e/test_full_disk_commands.py": 20,
    "tests/e2e/test_readme_labels.py": 18,
    "tests/e2e/test_fleet_prometheus.py": 20,
    "tests/e2e/test_fleet_ages.py": 185,
    "tests/e2e/test_sudden_ends_fleet.py": 45,
    "tests/e2e/test_sudden_ends_service.py": 20,
    "tests/servers/test_express.py": 28,
    "tests/e2e/test_oauth_pages.py": 30,
    "tests/fault/test_verdict.py": 25,
    "tests/fault/test_steady.py": 45,
    "tests/e2e/test_command_flood.py": 25,
    "tests/e2e/test_gateway_journey.py": 24,
    "tests/fault/test_gateway_chaos.py": 22,
    "tests/unit/simulator/fleet/device/test_pair.py": 20,
    "tests/e2e/test_gateway_process.py": 20,
    "tests/e2e/test_agent_mqtt.py": 18,
    "tests/e2e/test_agent_process.py": 18,
    "tests/e2e/test_onboarding_runs.py": 18,
    "tests/e2e/test_agent_upkeep.py": 17,
    "tests/fault/test_fleet_after_outage.py": 16,
    "tests/unit/agent/adapters/test_sqlite_bounds.py": 15,
    "tests/fault/test_wrong_clock_of_a_real_agent.py": 13,
    "tests/e2e/test_broker_rules.py": 12,
    "tests/unit/simulator/labels/test_resume.py": 12,
    "tests/e2e/test_modes_of_files.py": 60,
    "tests/e2e/test_processes_that_stand_still.py": 20,
    "tests/e2e/test_agent_cancel.py": 10,
    "tests/e2e/test_gateway_mqtt_front.py": 10,
    "tests/e2e/test_labels_print.py": 10,
    "tests/e2e/test_labels_sheets.py": 10,
    "tests/e2e/test_onboarding_service.py": 10,
    "tests/e2e/test_signed_commands.py": 10,
    "tests/fault/test_wrong_clocks.py": 10,
    "tests/e2e/test_agent_operations.py": 8,
    "tests/e2e/test_fleet_report.py": 8,
    "tests/e2e/test_labels_verify.py": 8,
    "tests/e2e/test_login.py": 8,
    "tests/e2e/test_several_gateways.py": 8,
    "tests/e2e/test_agent_bearer.py": 6,
}


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
    heads = deal({name: module for name, module in long.items() if module}, processes)
    # As the scheduler cuts it: each of those that are left gets its share of what is left.
    ordered: list[pytest.Item] = []
    for number, head in enumerate(heads):
        piece = (len(items) - len(ordered)) // (processes - number)
        cut = max(0, piece - len(head))
        ordered += [*head, *others[:cut]]
        del others[:cut]
    items[:] = [*ordered, *others]


def deal(modules: Mapping[str, list[pytest.Item]], hands: int) -> list[list[pytest.Item]]:
    """The longest module that is left to the hand that has the least to do, again and again."""
    dealt: list[list[pytest.Item]] = [[] for _ in range(hands)]
    seconds = [0] * hands
    for name in sorted(modules, key=lambda name: -LONGEST[name]):
        hand = seconds.index(min(seconds))
        dealt[hand] += modules[name]
        seconds[hand] += LONGEST[name]
    return dealt
