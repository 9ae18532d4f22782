"""A device for the doctor: a configuration, a state directory, and a system made of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.config import AgentConfig, LoadedConfig
from agent.doctor import CheckStatus, Finding
from agent.doctor.checks import CHECKS, Device

NOW_S = 1_800_000_000.0


class Bench:
    """One device; each look is at a fresh one.

    Attributes:
        values: its configuration, nested like the file.
        environ: the doctor's environment.
        system: where ``/proc``, ``/run`` and ``/etc`` are.
        programs: the first words of a system program -> what it prints.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.state_dir.mkdir(mode=0o700)
        self.system = folder / "system"
        self.system.mkdir()
        self.keys = {
            "api_key": self.key("api_key", "mk_doctor_0001"),
            "secret_key": self.key("secret_key", "msk_doctor"),
        }
        self.values: dict[str, Any] = {
            "service": {"base_url": "http://127.0.0.1:9"},
            "device": {"device_id": "d1"},
            "auth": {
                "allow_secret_key_on_device": True,
                "api_key_file": self.keys["api_key"],
                "secret_key_file": self.keys["secret_key"],
            },
            "state_dir": self.state_dir,
        }
        self.environ: dict[str, str] = {}
        self.programs: dict[str, str] = {}
        self.wall_s = NOW_S
        self.options: dict[str, Any] = {}

    def key(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def put(self, absolute: str, text: str = "") -> Path:
        path = self.system / absolute.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def boot_with_systemd(self, **properties: str) -> None:
        """The properties of the agent's unit."""
        (self.system / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.programs["systemctl show device-agent.service"] = text

    def config(self) -> LoadedConfig:
        return LoadedConfig(AgentConfig.model_validate(self.values), None)

    def subject(self) -> Device:
        options = {"root": self.system, "run": self._run, "wall": lambda: self.wall_s, **self.options}
        return Device(self.config, self.environ, **options)

    def findings(self, check_id: str) -> list[Finding]:
        check = next(each for each in CHECKS if each.id == check_id)
        return list(check.run(self.subject()))

    def look(self, check_id: str) -> Finding:
        """The worst that this one check finds, whatever the others would."""
        found = self.findings(check_id) or [Finding(CheckStatus.SKIPPED, "nothing to look at")]
        return max(found, key=lambda finding: list(CheckStatus).index(finding.verdict))

    def _run(self, argv: Sequence[str]) -> str:
        words = " ".join(argv)
        return next((text for begin, text in self.programs.items() if words.startswith(begin)), "")


@pytest.fixture
def device(tmp_path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def nobody_is_signalled(monkeypatch):
    """The lock of an agent that is said to run is held by the test itself, which has no handler."""
    monkeypatch.setattr("agent.app.status._ask", lambda _process_id, read: (read(), ""))
