"""The service of a test process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from simulator.pytest_plugin.account import Account
from simulator.pytest_plugin.control import ServiceUnderTest
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService


class DeviceService(ServiceUnderTest):
    """A service of the test's own, with any number of accounts."""

    @contextlib.contextmanager
    def account(self, **wanted: Any) -> Iterator[Account]:
        """A fresh account for the length of the block.

        Args:
            wanted: members of ``POST /_emulator/accounts``, such as ``quota`` or ``variant``.
        """
        made = self.control.post("accounts", wanted)
        account = Account(self, str(made["account_id"]), made["keys"][0])
        try:
            yield account
        finally:
            account.close()
            self.control.delete(f"accounts/{account.account_id}")


@contextlib.contextmanager
def running_service() -> Iterator[DeviceService]:
    """A service without a quota that keeps nothing, for the length of the block."""
    config = ServiceConfig(rate_limit=0, log_level="warning")
    with RunningService(config) as running:
        service = DeviceService(running.base_url)
        try:
            yield service
        finally:
            service.close()
