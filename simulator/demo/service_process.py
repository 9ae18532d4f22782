"""The demo's service: the program ``fleet-simulator service`` in a process of its own, with data on the disk."""

from __future__ import annotations

import re
from typing import Final

from agent.wire.auth import KeyPair
from simulator.children import ChildProcess, program_path
from simulator.demo.folder import DemoFolder
from simulator.keys import make_keys
from simulator.wire.client import ServiceClient

_ADDRESS: Final = re.compile(r"https?://[^\s]+")
_READY_S: Final = 30.0


class ServiceProcess:
    """The service as its users start it.

    Args:
        folder: where its data, keys and log go.
        child: its process, already with those that are ended in any case.
    """

    def __init__(self, folder: DemoFolder, child: ChildProcess) -> None:
        self._folder = folder
        self._child = child
        self.keys = make_keys(folder.service)
        self.base_url = ""

    @staticmethod
    def child(folder: DemoFolder) -> ChildProcess:
        """The process, not started."""
        return ChildProcess("service", folder.logs / "service.log", folder.logs / "service.out")

    def start(self) -> None:
        """Start it on a free port and wait for the address that it prints.

        The quota is off: twenty devices and the demo itself share one key, which no real fleet does.

        Raises:
            ChildFailed: it could not be started.
        """
        self._child.start(
            [
                str(program_path("fleet-simulator")),
                "service",
                "--port=0",
                f"--data={self._folder.service / 'data'}",
                f"--api-key={self.keys.api_key}",
                f"--secret-key-file={self._folder.service / 'secret_key'}",
                "--rate-limit=0",
                "--log-level=warning",
            ]
        )
        self._child.wait_until(self._has_address, "it printed its address", _READY_S)

    def client(self) -> ServiceClient:
        """A client with the demo's keys."""
        return ServiceClient(self.base_url, KeyPair(self.keys.api_key, self.keys.secret_key))

    def _has_address(self) -> bool:
        lines = (self._folder.logs / "service.out").read_text(errors="replace").splitlines(keepends=True)
        for line in lines:
            found = _ADDRESS.search(line)
            if found and line.endswith("\n"):
                self.base_url = found.group().rstrip("/")
                return True
        return False
