"""A plugin of pytest for ``make servers``: prints how each consumer fared with each choice of a server."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.servers.covering import Case, text_of

_CONSUMERS = {
    "test_the_client": "client",
    "test_a_virtual_device": "device",
    "test_the_audit": "audit",
    "test_the_onboarding_driver": "onboarding",
    "test_an_agent_over_http": "agent",
    "test_an_agent_over_mqtt_behind_a_gateway": "gateway",
}
_WIDTH = 12


class Matrix:
    """Counts (consumer, axis, value) -> passed and failed, in the process that shows the results."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[tuple[str, bool]]] = defaultdict(Counter)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One test's end; it came from the process that ran it."""
        found = dict(report.user_properties).get("server_case")
        if found is None or report.skipped or (report.when != "call" and not report.failed):
            return
        consumer, choices = found
        for axis, value in choices:
            self._counts[axis, value][consumer, report.passed] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The table: failed of played."""
        if not self._counts:
            return
        terminalreporter.section("failed / played, by choice of the server")
        consumers = list(dict.fromkeys(_CONSUMERS.values()))
        terminalreporter.write_line(f"{'':<44}" + "".join(f"{name:>{_WIDTH}}" for name in consumers))
        for (axis, value), counts in sorted(self._counts.items()):
            cells = [(counts[name, False], counts[name, True]) for name in consumers]
            row = "".join(f"{(f'{bad}/{bad + good}' if bad + good else '-'):>{_WIDTH}}" for bad, good in cells)
            terminalreporter.write_line(f"{f'{axis}={value}'[:43]:<44}{row}", red=any(bad for bad, _ in cells))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Write the case into the test's report, which travels between processes."""
    case = getattr(item, "callspec", None) and item.callspec.params.get("case")
    consumer = _CONSUMERS.get(getattr(item, "originalname", ""))
    if isinstance(case, Case) and consumer is not None:
        choices = [(axis, text_of(value)) for axis, value in case.choices.items()]
        choices += [("elsewhere", case.elsewhere)] if case.elsewhere else []
        item.user_properties.append(("server_case", (consumer, choices)))


def pytest_configure(config: pytest.Config) -> None:
    """Count where the results are shown."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Matrix(), "server-matrix")
