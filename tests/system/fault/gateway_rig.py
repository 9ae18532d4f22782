"""The rig with a broker and a gateway between agent and service; any of the four may be killed at any moment."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Self

import yaml

from gateway.tokens import FILE_NAME as TOKENS
from gateway.tokens import Tokens, make_token
from simulator.children import ChildProcess, program_path
from tests.support.mosquitto import Mosquitto
from tests.support.ports import free_port
from tests.system.fault.rig import Rig

_READY_S = 60.0


class GatewayRig(Rig):
    """Service, broker, gateway and agent as processes; the agent speaks MQTT only and holds no key.

    Args:
        folder: where everything goes.
        mosquitto: the broker's program.
    """

    def __init__(self, folder: Path, mosquitto: str) -> None:
        super().__init__(folder)
        (folder / "broker").mkdir()
        # Without persistence: what a killed broker held is gone, which is the worst that it can do.
        self.broker = Mosquitto(mosquitto, folder / "broker", ("allow_anonymous true", "log_type all"))
        self.gateway = self._children.add(ChildProcess("gateway", folder / "gateway.log"))
        self.http_port = free_port()

    def __enter__(self) -> Self:
        self.broker.start()
        try:
            super().__enter__()
        except BaseException:
            self.broker.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.broker.stop()

    def start_gateway(self) -> None:
        """Start it; it is not waited for."""
        program = str(program_path("device-gateway"))
        self.gateway.start([program, "run", "--config", str(self.folder / "gateway.yaml")])

    def wait_for_gateway(self) -> None:
        """Until it serves."""
        log = self.folder / "gateway.log"
        self.gateway.wait_until(lambda: "mqtt=connected" in log.read_text(), "it served", _READY_S)

    def kill_an_agent_that_holds_readings(self) -> set[int]:
        """Kill it while the gateway takes nothing, and start it again; the witness's readings that its outbox held."""
        gateway, seen = self.gateway.pid, self._witnessed()
        assert gateway is not None
        os.kill(gateway, signal.SIGSTOP)
        try:
            self.agent.wait_until(lambda: self._witnessed() >= seen + 20, "it read", _READY_S)
            self.agent.kill()
        finally:
            os.kill(gateway, signal.SIGCONT)
        held = self.committed_sequences()
        self.start_agent()
        return held

    def _witnessed(self) -> int:
        return self.witness.read_bytes().count(b"\n") if self.witness.exists() else 0

    def _configure(self) -> None:
        super()._configure()
        path = self.folder / "agent.yaml"
        agent = yaml.safe_load(path.read_text())
        del agent["service"]
        agent["mqtt"] = {"host": "127.0.0.1", "port": self.broker.port, "tls": False, "receipt_timeout_s": 3}
        agent["mqtt"]["reconnect_max_s"] = 1
        agent["auth"] = {"mode": "bearer", "token_file": str(self.folder / "token")}
        path.write_text(yaml.safe_dump(agent))
        state = self.folder / "gateway"
        state.mkdir(mode=0o700)
        token = make_token()
        with Tokens(state / TOKENS) as tokens:
            tokens.issue({self.device_id: token})
        (self.folder / "token").write_text(token.reveal())
        (self.folder / "token").chmod(0o600)
        gateway = {
            "service": {"base_url": f"http://127.0.0.1:{self._port}", "timeout_s": 3},
            "auth": {
                name: str(self.folder / name.removesuffix("_file")) for name in ("api_key_file", "secret_key_file")
            },
            "state_dir": str(state),
            "http": {"port": self.http_port},
            "mqtt": {"enabled": True, "port": self.broker.port},
            "commands": {"poll_s": 0.5, "reconcile_s": 5},
            "metrics": {"enabled": False},
        }
        (self.folder / "gateway.yaml").write_text(yaml.safe_dump(gateway))
        shutil.rmtree(self.folder / "peek", ignore_errors=True)
