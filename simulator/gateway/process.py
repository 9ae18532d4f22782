"""The gateway as its users run it: ``device-gateway run``, beside a local service and a local broker."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from agent.config.section import is_this_machine
from agent.errors import UnexpectedAnswer
from simulator.children import ChildProcess, program_path
from simulator.gateway.broker import Broker
from simulator.keys import Keys, write_secret

_ADDRESS: Final = re.compile(r"http=listening at (https?://\S+)")
_READY_S: Final = 60.0
_ANSWER_S: Final = 60.0


class GatewayProcess:
    """A gateway that runs as a child process.

    Args:
        folder: where its configuration, keys and state go.
        child: its process, already with those that are ended in any case.
        log: of that process.
    """

    def __init__(self, folder: Path, child: ChildProcess, log: Path) -> None:
        self._folder = folder
        self._child = child
        self._log = log
        self._log_begins = 0
        self._tls = folder / "tls"
        self.config_path = folder / "gateway.yaml"
        self.base_url = ""

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._child.pid

    def configure(self, service_url: str, keys: Keys, broker: Broker, host: str, port: int) -> None:
        """Write its files; a state from before stays.

        Args:
            service_url: of the service.
            keys: the key pair, which goes into this folder and to no device.
            broker: where its MQTT devices come from.
            host: for devices that speak HTTP; anything but loopback is served with TLS, by a certificate made here.
            port: for them; 0 takes any free one.

        Raises:
            UnexpectedAnswer: the certificate could not be made.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(self._folder / "api_key", keys.api_key)
        write_secret(self._folder / "secret_key", keys.secret_key.reveal())
        http: dict[str, Any] = {"host": host, "port": port}
        if not is_this_machine(host):
            self._run("certificates", "--host", host, "--dir", str(self._tls))
            http |= {"certificate": str(self._tls / "server.pem"), "private_key": str(self._tls / "server.key")}
        configuration = {
            # The service is this machine's own, at whatever address it listens.
            "service": {"base_url": service_url, "allow_plain_http": True},
            "auth": {
                "api_key_file": str(self._folder / "api_key"),
                "secret_key_file": str(self._folder / "secret_key"),
            },
            "state_dir": str(self._folder / "state"),
            "http": http,
            "mqtt": {
                "enabled": True,
                "port": broker.port,
                **({} if broker.speaks_v5 else {"version": "3.1.1"}),
            },
            "commands": {"poll_s": 0.5, "reconcile_s": 60},
            "metrics": {"enabled": False},
        }
        self.config_path.write_text(yaml.safe_dump(configuration, sort_keys=False))

    def begin(self) -> None:
        """Start it; :meth:`wait_until_ready` before anything else.

        Raises:
            ChildFailed: it could not be started.
        """
        self._log_begins = self._log.stat().st_size if self._log.exists() else 0
        self._child.start([str(program_path("device-gateway")), "run", "--config", str(self.config_path)])

    def look(self) -> None:
        """Raise :class:`~simulator.children.ChildFailed` when it has ended."""
        self._child.look()

    def wait_until_ready(self) -> None:
        """Until devices are served both ways.

        Raises:
            ChildFailed: it did not start; the text ends with its log.
        """
        self._child.wait_until(self._serves, "it served devices", _READY_S)

    def hand_out(self, device_id: str, broker: Broker | None, folder: Path) -> str:
        """A new token for a device, with a ready configuration of the agent in ``folder``; the token.

        Args:
            device_id: whose.
            broker: the agent speaks MQTT with it; None makes one that speaks HTTP alone.
            folder: of the configuration.

        Raises:
            UnexpectedAnswer: the program failed.
        """
        options = [
            *("--config-out", str(folder), "--device-dir", str(folder), "--plain"),
            *("--url", self.base_url),
            *(("--broker", f"127.0.0.1:{broker.port}") if broker else ()),
            *(("--ca", str(self._tls / "ca.pem")) if self.base_url.startswith("https") else ()),
        ]
        answer = self._ask("devices", "add", "--device-id", device_id, "--no-check", *options, good=(0, 1))
        if device_id in (answer.get("kept") or []):  # from an earlier start: nobody can read that one again
            answer = self._ask("devices", "rotate", device_id, "--overlap-s", "0", *options, good=(0, 1))
        issued = answer.get("issued") or []
        if not issued:
            raise UnexpectedAnswer(f"the gateway gave device {device_id} no token: {answer.get('failed')}")
        return str(issued[0]["token"])

    def invite(self, product_id: str, user_id: str) -> str:
        """A code with which one more device of a product enrolls, within an hour.

        Raises:
            UnexpectedAnswer: the program failed.
        """
        words = ("--product-id", product_id, "--user-id", user_id, "--url", self.base_url)
        plain = () if self.base_url.startswith("https") else ("--plain",)
        return str(self._ask("devices", "invite", *words, *plain)["code"])

    def _ask(self, *words: str, good: tuple[int, ...] = (0,)) -> dict[str, Any]:
        text = self._run(*words, "--json", "--config", str(self.config_path), good=good)
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise UnexpectedAnswer(f"'device-gateway {' '.join(words[:2])}' failed: {error!r}") from None

    def _run(self, *words: str, good: tuple[int, ...] = (0,)) -> str:
        """What the program prints when it ends well."""
        try:
            done = subprocess.run(
                [str(program_path("device-gateway")), *words],
                capture_output=True,
                text=True,
                timeout=_ANSWER_S,
                check=False,
            )
            if done.returncode in good:
                return done.stdout
            reason = done.stderr.strip()
        except (subprocess.TimeoutExpired, OSError) as error:
            reason = repr(error)
        raise UnexpectedAnswer(f"'device-gateway {' '.join(words[:2])}' failed: {reason}")

    def _serves(self) -> bool:
        with self._log.open("rb") as file:
            file.seek(self._log_begins)
            text = file.read().decode(errors="replace")
        found = _ADDRESS.search(text)
        if found:
            self.base_url = found.group(1)
        return found is not None and "mqtt=connected" in text
