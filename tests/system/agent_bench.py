"""A real service and real ``device-agent`` processes for end-to-end tests."""

from __future__ import annotations

import os
import selectors
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from agent.wire.models import CommandRecord
from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice, SendCommand
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.support import canary
from tests.support.canary import SECRET_KEY
from tests.support.nspawn import Container

SOON_S = 60.0
"""Nothing waits that long on a machine that has nothing else to do; a busy one is no failure."""
START_S = 60.0
"""A start takes a second of processor time, and the machine may have other work."""
PROMPT_S = 20.0
"""For an end that must not wait for what goes on: a poll is held for 25 s, and handlers here sleep for a minute."""
API_KEY = "mk_bench"


_LOUD = {"DEVICE_AGENT_LOGGING__LEVEL": "debug", "DEVICE_GATEWAY_LOGGING__LEVEL": "debug"}


class AgentProcess:
    """One ``device-agent run``, or another of its programs that run on; what it logs is kept."""

    def __init__(
        self,
        config: Path,
        *,
        program: Sequence[str] = ("run",),
        module: str = "agent.cli",
        command: Sequence[str] = (),
        **environ: str,
    ) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [*(command or (sys.executable, "-m", module)), *program, "--config", str(config)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # At the level at which programs say most; a test, or its configuration file through it, may say less.
            env={**_LOUD, **os.environ, **environ},
        )
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stderr, selectors.EVENT_READ)
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, text: str, within_s: float = SOON_S) -> str:
        """The first line, also an earlier one, that holds ``text``."""
        deadline_s = time.monotonic() + within_s
        seen = 0
        while True:
            for line in self.lines[seen:]:
                if text in line:
                    canary.check_process(self._process.pid)
                    return line
            seen = len(self.lines)
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"the agent did not say {text!r} within {within_s} s:\n" + "\n".join(self.lines)
            assert self._read(left_s) or self._process.poll() is None, "the agent ended:\n" + "\n".join(self.lines)

    def terminate(self, within_s: float = SOON_S) -> tuple[int, float]:
        """SIGTERM: the exit code, and how long it took, seconds."""
        begun_s = time.monotonic()
        self._process.terminate()
        return self.wait(within_s), time.monotonic() - begun_s

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self, within_s: float = SOON_S) -> int:
        """Wait for the end; the exit code."""
        deadline_s = time.monotonic() + within_s
        while self._process.poll() is None and time.monotonic() < deadline_s:
            self._read(0.05)
        assert self._process.poll() is not None, f"the agent did not end within {within_s} s:\n" + "\n".join(self.lines)
        code = self._process.returncode
        while self._read(0):
            pass
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            canary.check_process(self._process.pid)
            self.kill()
        canary.check_output("\n".join(self.lines))
        self._selector.close()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self, timeout_s: float) -> bool:
        if not self._selector.select(timeout_s):
            return False
        assert self._process.stderr is not None
        data = os.read(self._process.stderr.fileno(), 65536)
        if not data:
            self._process.wait(timeout_s + 1.0)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode("utf-8", "replace") for line in lines]
        return True


class AgentBench:
    """One registered device with its configuration, against a service that runs already."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        self.config = folder / "config.yaml"
        self.state_dir = folder / "state"
        self.client = ServiceClient(base_url, KeyPair(API_KEY, Secret(SECRET_KEY)))
        self._agents: list[AgentProcess] = []
        self.product_id = self.client.create_product(NewProduct(name="bench")).product_id
        device = self.client.register_device(
            RegisterDevice(
                user_id="u1",
                product_id=self.product_id,
                device_name="bench",
                device_identifier=f"SN-{os.getpid()}-{time.monotonic_ns()}",
                qr_info={},
            )
        )
        self.device_id = device.device_id
        self.write_config(base_url)

    def write_config(self, base_url: str, *, secret_key: str = SECRET_KEY, more: str = "") -> None:
        for name, value in (("api_key", API_KEY), ("secret_key", secret_key)):
            path = self.folder / name
            path.write_text(value)
            path.chmod(0o600)
        self.config.write_text(
            f"service: {{base_url: '{base_url}', timeout_s: 30}}\n"
            f"device: {{device_id: '{self.device_id}', product_id: '{self.product_id}'}}\n"
            f"auth:\n  allow_secret_key_on_device: true\n"
            f"  api_key_file: '{self.folder}/api_key'\n  secret_key_file: '{self.folder}/secret_key'\n"
            f"state_dir: '{self.state_dir}'\n"
            f"commands:\n  poll: {{fast_s: 0.2, idle_s: 1, spread_s: 0}}\n{more}"
        )

    def start(
        self, *, until: str = "agent=ready", module: str = "agent.cli", command: Sequence[str] = (), **environ: str
    ) -> AgentProcess:
        agent = AgentProcess(self.config, module=module, command=command, **environ)
        self._agents.append(agent)
        agent.wait_for(until, START_S)
        return agent

    def send(self, **payload: Any) -> str:
        command = SendCommand(device_id=self.device_id, command_payload=payload)
        found = self.client.send_command(command).id
        assert found is not None
        return found

    def commands(self) -> dict[str, CommandRecord]:
        return {record.id or "": record for record in self.client.device_commands(self.device_id).records}

    def wait_for(self, command_id: str, *statuses: str, within_s: float = SOON_S) -> CommandRecord:
        wanted = statuses or ("succeeded", "failed", "rejected")
        return wait_until(
            lambda: record if (record := self.commands()[command_id]).status in wanted else None, within_s
        )

    def configure(self, machine: Container, **more: object) -> None:
        """Its keys and its configuration on a machine that has the agent's user."""
        for name, key in (("api_key", API_KEY), ("secret_key", SECRET_KEY)):
            machine.write(f"/etc/device-agent/{name}", key, 0o640)
            machine.run("chgrp", "device-agent", f"/etc/device-agent/{name}")
        values = {
            "service": {"base_url": str(self.client.base_url), "timeout_s": 30},
            "device": {"device_id": self.device_id},
            "auth": {"allow_secret_key_on_device": True},
            "commands": {"poll": {"fast_s": 0.2, "idle_s": 1, "spread_s": 0}},
        }
        machine.write("/etc/device-agent/config.yaml", yaml.safe_dump(values | more))

    def close(self) -> None:
        for agent in self._agents:
            agent.close()
        self.client.close()


def wait_until(look: Callable[[], Any], within_s: float = SOON_S, what: str = "nothing came") -> Any:
    """Look again and again until there is something; fails after ``within_s`` with ``what`` is wrong then."""
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"{what} within {within_s} s"
        threading.Event().wait(0.05)
    return found


def plugin_folder(folder: Path, name: str, text: str, points: str) -> Path:
    """A folder for ``PYTHONPATH`` in which a package of one module is installed, with these entry points."""
    described = folder / f"{name}-1.0.dist-info"
    described.mkdir(parents=True)
    (folder / f"{name}.py").write_text(text)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(points)
    return folder


def program(path: Path, text: str) -> Path:
    """A shell script that can be started."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
