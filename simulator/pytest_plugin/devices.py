"""Devices of a test: virtual ones in this process, and real agents in processes of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml

from simulator.children import ChildProcess, program_path
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, DeviceLedger, FleetTarget, FleetThread
from simulator.fleet.signals import signals_of_json
from simulator.keys import write_secret
from simulator.pytest_plugin.account import WAIT_S, Account

_READY: Final = "agent=ready"
_STOP_S: Final = 20.0
_FAST: Final[dict[str, Any]] = {"commands": {"poll": {"fast_s": 0.2, "idle_s": 1, "spread_s": 0}}}


class VirtualDevice:
    """A device that decides with the agent's own core, on a thread of its own.

    Args:
        identity: as it is registered.
        fleet: runs it.
    """

    def __init__(self, identity: DeviceIdentity, fleet: FleetThread) -> None:
        self.device_id = identity.device_id
        self._fleet = fleet

    @property
    def ledger(self) -> DeviceLedger:
        """What it did, by its own books: requests, readings sent and accepted, runs of commands."""
        return self._fleet.ledgers[self.device_id]

    def switch_off(self) -> None:
        """The power goes in this instant: what was in flight is cut off, and only the disk remains."""
        self._fleet.switch_off()

    def switch_on(self) -> None:
        """Power again: it goes on with what its disk has."""
        self._fleet.switch_on()

    def settle(self, timeout_s: float = WAIT_S) -> None:
        """Read no more, and wait until everything that it has is handed over.

        Raises:
            AssertionError: it was not in time.
        """
        if not self._fleet.settle(timeout_s):
            raise AssertionError(f"after {timeout_s:g} s the device still has something to send: {self.ledger.faults}")


class VirtualDevices:
    """Starts virtual devices.

    Args:
        account: that they are registered in.
        ends: ends them.
    """

    def __init__(self, account: Account, ends: ExitStack) -> None:
        self._account = account
        self._ends = ends

    def __call__(
        self,
        identifier: str | None = None,
        *,
        interval_s: float = 1.0,
        signals: Mapping[str, Mapping[str, Any]] | None = None,
        seed: int = 0,
    ) -> VirtualDevice:
        """Register a device and switch it on.

        Args:
            identifier: of the device; made when None.
            interval_s: seconds between two readings.
            signals: what it reads, as in a scenario; the climate of a room when None.
            seed: of what it reads.
        """
        account = self._account
        model = DeviceModel(interval_s=interval_s)
        if signals is not None:
            found = signals_of_json({name: dict(one) for name, one in signals.items()})
            model = DeviceModel(interval_s=interval_s, signals=found)
        device_id = account.device(identifier)
        identity = DeviceIdentity(device_id, account.product_id, device_id)
        target = FleetTarget(account.base_url, account.headers, account.client.discover().extensions)
        fleet = self._ends.enter_context(FleetThread(target, [identity], model, seed=seed))
        fleet.switch_on()
        return VirtualDevice(identity, fleet)


class AgentProcess:
    """A real agent: the program ``device-agent`` with a folder of its own.

    Args:
        folder: for configuration, keys, state and log.
        device_id: who it is.
        config: the whole configuration.

    Attributes:
        config_path: the configuration's file.
        state_dir: what the agent keeps.
    """

    def __init__(self, folder: Path, device_id: str, config: Mapping[str, Any]) -> None:
        self.device_id = device_id
        self.config_path = folder / "config.yaml"
        self.state_dir = Path(str(config["state_dir"]))
        self.config_path.write_text(yaml.safe_dump(dict(config), sort_keys=False), "utf-8")
        self._log = folder / "agent.log"
        self._process = ChildProcess("device-agent", self._log)

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has logged so far, over all its starts."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it, for the first time or again, and wait until it is ready.

        Raises:
            NotStarted: it could not be started; the text shows the end of its log.
        """
        before = self.log.count(_READY)
        self._process.start([str(program_path("device-agent")), "run", "--config", str(self.config_path)])
        self._process.wait_until(lambda: self.log.count(_READY) > before, "it was ready", WAIT_S)

    def kill(self) -> None:
        """SIGKILL, as if the power went."""
        self._process.kill()

    def stop(self) -> int | None:
        """SIGTERM; its exit code."""
        return self._process.end(_STOP_S)

    def status(self) -> dict[str, Any]:
        """What ``device-agent status --json`` prints, while it runs and after."""
        program = [str(program_path("device-agent")), "status", "--config", str(self.config_path), "--json"]
        ended = subprocess.run(program, capture_output=True, timeout=WAIT_S, check=False)
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


class AgentProcesses:
    """Starts real agents.

    Args:
        account: that they are registered in, and whose keys they hold.
        folder: where their folders are made.
        ends: ends them.
    """

    def __init__(self, account: Account, folder: Path, ends: ExitStack) -> None:
        self._account = account
        self._folder = folder
        self._ends = ends
        self._count = 0

    def __call__(self, identifier: str | None = None, *, config: Mapping[str, Any] | None = None) -> AgentProcess:
        """Register a device, start its agent and wait until it is ready.

        Args:
            identifier: of the device; made when None.
            config: keys of the agent's configuration, laid over those that it needs.

        Raises:
            NotStarted: the agent could not be started; the text shows the end of its log.
        """
        self._count += 1
        folder = self._folder / f"agent-{self._count}"
        folder.mkdir()
        device_id = self._account.device(identifier)
        agent = AgentProcess(folder, device_id, _laid_over(self._needed(folder, device_id), config or {}))
        self._ends.callback(agent.stop)
        agent.start()
        return agent

    def _needed(self, folder: Path, device_id: str) -> dict[str, Any]:
        keys = {"api_key": self._account.api_key, "secret_key": self._account.secret_key.reveal()}
        files = {f"{name}_file": str(write_secret(folder / name, value)) for name, value in keys.items()}
        (folder / "state").mkdir(mode=0o700)
        return {
            "service": {"base_url": self._account.base_url},
            "device": {"device_id": device_id},
            "auth": {"allow_secret_key_on_device": True, **files},
            "state_dir": str(folder / "state"),
            **_FAST,
        }


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of both; sections of both are laid over each other, anything else is the one above."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        found[name] = _laid_over(under, value) if isinstance(under, dict) and isinstance(value, Mapping) else value
    return found
