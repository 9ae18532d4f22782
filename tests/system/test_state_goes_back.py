"""A state directory that goes back to what it was, and two boards with one card: real agents, a real service."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.errors import Conflict
from agent.wire.secret import Secret
from simulator.service.clock import SystemClock
from tests.support.service_running import Bench
from tests.support.variants import running_as, variant
from tests.system.agent_bench import API_KEY, SECRET_KEY, AgentBench, AgentProcess, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SENSOR = "sensors: [{name: s, type: simulated, interval_s: 0.5, settings: {shape: random_walk}}]\n"


def door(folder: Path) -> str:
    return f"executables: {{door: {{argv: [/bin/sh, -c, 'echo opened >> {folder}/opened; echo {{}}']}}}}\n"


def opened(folder: Path) -> int:
    path = folder / "opened"
    return path.read_text().count("opened") if path.exists() else 0


class Card:
    """A device whose state directory is that of its card at each boot."""

    def __init__(self, folder: Path, service: Bench, more: str) -> None:
        self.folder = folder
        self.service = service
        self.bench = AgentBench(folder, service.service.base_url)
        self.bench.write_config(service.service.base_url, more=more)

    def run(self, *, to_store: int = 0) -> AgentProcess:
        before = self.stored()
        agent = self.bench.start()
        if to_store:
            wait_until(lambda: self.stored() >= before + to_store)
        return agent

    def boot(self, *, to_store: int = 0) -> AgentProcess:
        shutil.rmtree(self.bench.state_dir, ignore_errors=True)
        shutil.copytree(self.folder / "card", self.bench.state_dir)
        return self.run(to_store=to_store)

    def set_up(self, *, to_store: int) -> None:
        self.keep(self.run(to_store=to_store))

    def keep(self, agent: AgentProcess) -> None:
        assert agent.terminate()[0] == 0
        shutil.copytree(self.bench.state_dir, self.folder / "card")
        self.waiting_at_first, self.delivered_at_first = self.waiting(), self.delivered()

    def stored(self) -> int:
        query = {"device_id": self.bench.device_id, "limit": 1000}
        return len(self.service.http.get("/sensor-data", params=query).json()["data"])

    def waiting(self) -> int:
        return self._count_before(" waiting")

    def delivered(self) -> int:
        return self._count_before(" delivered")

    def _count_before(self, word: str) -> int:
        line = next(line for line in status(self.bench).splitlines() if line.startswith("readings"))
        return int(line.partition(word)[0].split()[-1])


def ping(card: Card) -> bool:
    """Send one; a queue that is full already has enough of them."""
    with contextlib.suppress(Conflict):
        card.bench.send(command="ping")
    return True


def any_result(service: Bench, query: dict[str, str]) -> bool:
    return bool(service.http.get("/database/runtime-data", params=query).json()["data"])


def status(bench: AgentBench) -> str:
    return CliRunner().invoke(device_agent, ["status", "--config", str(bench.config)]).output


@pytest.fixture(params=["complete", "plain", "plain without results"])
def card(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Card]:
    base, _, without = request.param.partition(" ")
    wanted = variant(base, results="none") if without else variant(base)
    with running_as(wanted, clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)) as service:
        made = Card(tmp_path, service, SENSOR + door(tmp_path))
        yield made
        made.bench.close()


def test_each_boot_stores_what_it_calls_delivered_and_no_command_runs_in_two_of_them(card: Card):
    card.set_up(to_store=3)
    sent = None
    for number in range(3):
        before = card.stored()
        agent = card.boot()
        if sent is None:
            agent.wait_for("agent=ready")
            sent = card.bench.send(command="door")
            wait_until(lambda: opened(card.folder) == 1)
        wait_until(lambda before=before: card.stored() >= before + 12)
        if number:
            agent.wait_for("state=older")
            assert "older" in status(card.bench)
        assert agent.terminate()[0] == 0
        # What waits on the card is delivered anew by each boot under the same keys, and stored by the first one alone.
        assert card.stored() - before >= card.delivered() - card.delivered_at_first - card.waiting_at_first
        assert opened(card.folder) == 1


def test_without_readings_a_result_in_the_table_shows_that_the_state_is_older(tmp_path):
    wanted = variant("plain")
    with running_as(wanted, clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)) as service:
        card = Card(tmp_path, service, door(tmp_path))
        query = {"device_id": card.bench.device_id, "table_name": "command_results"}

        def has_result(command_id: str) -> bool:
            records = service.http.get("/database/runtime-data", params=query).json()["data"]
            return any(record["data_payload"]["command_id"] == command_id for record in records)

        try:
            agent = card.run()
            # What was sent before the first contact is history: one that has a result came after it.
            wait_until(lambda: ping(card) and any_result(service, query))
            card.keep(agent)
            agent = card.boot()
            sent = card.bench.send(command="door")
            wait_until(lambda: has_result(sent))
            agent.kill()
            agent = card.boot()
            agent.wait_for("state=older")
            sent = card.bench.send(command="door")
            wait_until(lambda: has_result(sent))
            assert opened(tmp_path) == 2, "the old command ran once, and the new one runs"
        finally:
            card.bench.close()


def test_two_boards_with_one_card_lose_nothing_and_are_told_of_each_other(tmp_path):
    with running_as(variant(), clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)) as service:
        one = Card(tmp_path, service, SENSOR)
        other_config = tmp_path / "other.yaml"
        try:
            one.set_up(to_store=2)
            text = one.bench.config.read_text().replace(str(one.bench.state_dir), str(tmp_path / "other"))
            other_config.write_text(text)
            shutil.copytree(tmp_path / "card", tmp_path / "other")
            first = one.bench.start()
            other = AgentProcess(other_config)
            try:
                first.wait_for("identity=two_agents another agent runs under this device's identity")
                other.wait_for("identity=two_agents")
                assert "another agent runs under this device's identity" in status(one.bench)
                wait_until(lambda: one.stored() >= 30)
            finally:
                other.close()
            first.terminate()
            keys = {record["id"] for record in service.http.get("/sensor-data", params={"limit": 1000}).json()["data"]}
            assert len(keys) == one.stored()
        finally:
            one.bench.close()


@pytest.mark.parametrize(("below", "verdict"), [("ram", "failed"), ("disk", "ok")])
def test_the_doctor_looks_where_the_upper_directory_of_an_overlay_lies(tmp_path, below, verdict):
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounting an overlay needs root and a mount namespace")
    for name in ("card", "ram", "root"):
        (tmp_path / name).mkdir(mode=0o700)
    config = tmp_path / "config.yaml"
    config.write_text(
        "service: {base_url: 'http://127.0.0.1:9'}\ndevice: {device_id: d1}\n"
        f"auth: {{mode: bearer, token_file: {tmp_path}/token}}\nstate_dir: {tmp_path}/root\n"
    )
    (tmp_path / "token").write_text("dt_x")
    (tmp_path / "token").chmod(0o600)
    mount_ram = f"mount -t tmpfs r {tmp_path}/ram &&" if below == "ram" else ""
    if below == "disk" and _kind_of(tmp_path) in {"tmpfs", "overlay"}:
        pytest.skip("the temporary folder lies on no disk of its own")
    layers = f"lowerdir={tmp_path}/card,upperdir={tmp_path}/ram/up,workdir={tmp_path}/ram/work"
    script = (
        f"{mount_ram} mkdir {tmp_path}/ram/up {tmp_path}/ram/work && mount -t overlay o -o {layers} {tmp_path}/root"
        f" && {sys.executable} -m agent.cli doctor --offline --config {config}"
    )
    shown = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False).stdout
    line = next(line for line in shown.splitlines() if " disk " in line)
    assert line.split()[0].lower().startswith(verdict[:4]), shown


def _kind_of(path: Path) -> str:
    shown = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True).stdout
    return {"overlayfs": "overlay"}.get(shown.strip(), shown.strip())
