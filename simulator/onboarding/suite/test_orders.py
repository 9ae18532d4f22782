"""Every order of events, as the table of the journey says; races as often as asked for."""

from __future__ import annotations

import pytest

from simulator.onboarding.cases import CASES, Case, ConcurrentRequests
from simulator.onboarding.journey import Verdict
from simulator.onboarding.session import Accounts
from simulator.onboarding.suite.settings import Products, Settings, settings_of
from simulator.onboarding.walk import walk


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case, and several for a race that is repeated."""
    repeat = settings_of(metafunc.config).repeat
    found = []
    for case in CASES:
        is_race = any(isinstance(step, ConcurrentRequests) for step in case.steps)
        for number in range(repeat if is_race else 1):
            found.append(pytest.param(case, id=case.name + (f"-{number + 1}" if is_race else "")))
    metafunc.parametrize("case", found)


def test_order(
    case: Case, request: pytest.FixtureRequest, settings: Settings, accounts: Accounts, products: Products
) -> None:
    """Each answer is one that the table has for the state; what the specification leaves open is noted."""
    name = request.node.callspec.id.replace(".", "-")
    steps = walk(accounts, case, products.subjects(case, name))
    for step in steps:
        if step.verdict is Verdict.ALLOWED:
            line = f"{case.name}: {step.action}: {step.answered}"
            settings.silent.append(line)
            request.node.user_properties.append(("silent", line))
    if steps[-1].verdict is Verdict.FAILED:
        pytest.fail(f"{case.title} Step {len(steps)}, {steps[-1]}", pytrace=False)
