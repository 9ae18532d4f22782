"""``device-gateway rollout`` at a real service with 500 devices: it stops where it should, and survives ``kill -9``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.wire.secret import KeyPair, Secret
from gateway.cli import device_gateway
from gateway.client import RegisterDevice
from gateway.rollout import in_waves
from simulator.pytest_plugin.service import DeviceService
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.support.ports import free_port
from tests.system.agent_bench import API_KEY, SECRET_KEY, wait_until
from tests.system.plain_server import Choices, plain_server

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

SEND = ("POST", "/commands/send")


class Bench:
    """A configuration of the gateway, and the command."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        for name, text in (("api_key", API_KEY), ("secret_key", SECRET_KEY)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        keys = f"{{api_key_file: {folder}/api_key, secret_key_file: {folder}/secret_key}}"
        (folder / "config.yaml").write_text(
            f"service: {{base_url: '{base_url}'}}\nauth: {keys}\nstate_dir: {folder}/state\n"
        )
        (folder / "state").mkdir()

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "rollout", "--json", *map(str, words)],
            env={**os.environ, "DEVICE_GATEWAY_CONFIG": str(self.folder / "config.yaml")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, code: int = 0) -> dict[str, object]:
        """The JSON that it printed."""
        process = self.start(*words)
        out, said = process.communicate(timeout=240)
        assert process.returncode == code, out + said
        assert "Traceback" not in said
        return json.loads(out)

    def said(self, *words: object, code: int) -> str:
        """What it says on standard error, in this process."""
        environ = {"DEVICE_GATEWAY_CONFIG": str(self.folder / "config.yaml")}
        done = CliRunner().invoke(device_gateway, ["rollout", *map(str, words)], env=environ)
        assert done.exit_code == code, done.output
        return done.output


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    config = ServiceConfig(
        data_dir=tmp_path_factory.mktemp("service"), api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0
    )
    with RunningService(config) as running:
        control = DeviceService(running.base_url)
        yield control
        control.close()


@pytest.fixture(scope="module")
def fleet(service):
    """The ids of 500 registered devices; each tenth one fails at what it is sent."""
    with ServiceClient(service.base_url, KeyPair(API_KEY, Secret(SECRET_KEY))) as client:
        product_id = client.create_product(NewProduct(name="Door")).product_id
        labels = [
            RegisterDevice(user_id="me", product_id=product_id, device_identifier=f"SN-{number}")
            for number in range(500)
        ]
        ids = [client.register_device(label).device_id for label in labels]
        for number, device_id in enumerate(ids):
            ends = {"status": "failed", "error": "no room"} if number % 10 == 0 else {"status": "succeeded"}
            service.script(device_id, poll_s=1, answers=[ends])
        yield ids
        service.tidy_up()


def sent(service, ids, name):
    """How many commands of a rollout each device has at the service."""
    with ServiceClient(service.base_url, KeyPair(API_KEY, Secret(SECRET_KEY))) as client:
        payload = command(name)
        return Counter(
            device_id
            for device_id in ids
            for record in client.device_commands(device_id).records
            if record.command_payload == payload
        )


def command(name):
    return {"command": "update_agent", "rollout": name}


def options(name, file, ids, *more):
    """The words that begin a rollout for devices that are listed in a file."""
    file.write_text("\n".join(["# the doors of one street", *ids, ids[0], ""]))
    return ("--name", name, "--command", json.dumps(command(name)), "--devices", file, *more)


def test_a_rollout_of_which_a_tenth_fails_stops_in_its_wave(service, fleet, tmp_path):
    ids = fleet
    bench = Bench(tmp_path, service.base_url)
    # A name whose first device is a good one.
    failing = set(ids[::10])
    name = next(f"r{number}" for number in range(100) if in_waves(f"r{number}", ids, "1,all")[0][0] not in failing)
    ended = bench.run(*options(name, tmp_path / "ids", ids), code=1)

    assert ended["ended"] == "stopped"
    waves = in_waves(name, ids, "1,5%,25%,all")
    sizes = [len(wave) for wave in waves]
    assert sizes == [1, 24, 100, 375]
    failed = [wave["failed"] for wave in ended["waves"]]
    at = next(at for at, size in enumerate(sizes) if failed[at] > 0.05 * size)
    assert at > 0
    assert f"of wave {at + 1} failed" in ended["reason"]
    assert [wave["planned"] for wave in ended["waves"][at + 1 :]] == sizes[at + 1 :]
    order = [device for wave in waves for device in wave]
    assert [device["device_id"] for device in ended["devices"]] == order
    assert {device["reason"] for device in ended["devices"] if device["state"] == "failed"} == {"no room"}
    counted = sent(service, ids, name)
    assert set(counted.values()) == {1}
    reached = {device["device_id"] for device in ended["devices"] if device["state"] != "planned"}
    assert counted.keys() == reached

    # Resumed it stops at once.
    assert bench.run("--resume", "--name", name, code=1)["reason"] == ended["reason"]
    assert len(sent(service, reached, name)) == len(reached)


def test_killed_at_any_moment_and_resumed_each_device_gets_one_command(service, fleet, tmp_path):
    """Before a command is carried out, after it and before its answer, while results are waited for, and anywhere."""
    ids = fleet[: int(os.environ.get("ROLLOUT_DEVICES", "50"))]
    bench = Bench(tmp_path, service.base_url)
    words = options("killed", tmp_path / "ids", ids, "--waves", "20,all", "--max-failed", "30%")
    moments = [
        *((SEND, {"latency": {"fixed_s": 600, "of": "request"}, "after": after}) for after in (0, 5)),
        *((SEND, {"latency": 600, "after": after}) for after in (0, 3, 7)),
        (("GET", "/devices/{device_id}/commands"), {"latency": 600, "after": 2}),
        (SEND, {"lose": "answer", "after": 4}),
    ]
    for (method, path), how in moments:
        fault = service.fault(method, path, next=1, **how)
        process = bench.start(*words)
        wait_until(lambda fault=fault: fault.hits >= 1, 60.0)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        fault.remove()
        words = ("--resume", "--name", "killed")

    ended = bench.run(*words)

    assert ended["ended"] == "done"
    assert sent(service, ids, "killed") == dict.fromkeys(ids, 1)
    tenth = len(ids) // 10
    states = Counter(device["state"] for device in ended["devices"])
    assert states == {"succeeded": len(ids) - tenth, "failed": tenth}


def test_ctrl_c_shows_the_table_and_the_line_that_goes_on(service, fleet, tmp_path):
    ids = fleet[:4]
    bench = Bench(tmp_path, service.base_url)
    fault = service.fault(*SEND, latency=600, after=1, next=1)
    process = bench.start(*options("halted", tmp_path / "ids", ids, "--waves", "all", "--max-failed", "50%"))
    wait_until(lambda: fault.hits >= 1, 60.0)
    second = bench.start("--resume", "--name", "halted")
    assert "another process works on this rollout" in second.communicate(timeout=60)[1]
    assert second.returncode == 2
    process.send_signal(signal.SIGTERM)
    fault.remove()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["reason"] == "device-gateway rollout --resume --name halted"
    assert bench.run("--resume", "--name", "halted")["ended"] == "done"
    assert sent(service, ids, "halted") == dict.fromkeys(ids, 1)


def test_a_quota_is_kept_to_and_not_run_into(service, fleet, tmp_path):
    """Its client sees what is left of the window in the answers' headers, and spends it evenly."""
    del fleet
    with service.account(quota=120) as other:
        bench = Bench(tmp_path, service.base_url)
        (tmp_path / "api_key").write_text(other.api_key)
        (tmp_path / "secret_key").write_text(other.secret_key.reveal())
        ids = [other.device() for _ in range(8)]
        for device_id in ids:
            other.script(device_id, poll_s=0.2, answers=[{"status": "succeeded"}])
        ended = bench.run(*options("quota", tmp_path / "ids", ids, "--waves", "all"))
        assert ended["ended"] == "done"
        assert not service.requests(status="429", account_id=other.account_id)


def test_a_plain_server_is_sent_what_the_specification_has_and_its_results_are_read_in_the_table(tmp_path):
    with plain_server() as plain:
        bench = Bench(tmp_path, plain.base_url)
        ids = [f"dev-{number}" for number in range(3)]
        plain.devices += [{"device_id": each, "product_id": "p1"} for each in ids]
        process = bench.start(*options("plain", tmp_path / "ids", ids, "--waves", "1,all"))

        def report():
            reported = {row["data_payload"]["command_id"] for row in plain.results}
            for device_id, commands in list(plain.commands.items()):
                for each in commands:
                    if each["_id"] not in reported:
                        payload = {"command_id": each["_id"], "status": "succeeded", "result": {}, "error": None}
                        row = {"product_id": "p1", "device_id": device_id, "table_name": "command_results"}
                        plain.results.append({**row, "data_payload": payload})
            return process.poll() is not None

        wait_until(report, 120.0)
        out, said = process.communicate()
        assert process.returncode == 0, out + said
        assert plain.beyond == []
        assert {device_id: len(sent) for device_id, sent in plain.commands.items()} == dict.fromkeys(ids, 1)


def test_a_server_that_names_no_command_stops_it_after_the_first_device(tmp_path):
    with plain_server(Choices(text=True)) as plain:
        bench = Bench(tmp_path, plain.base_url)
        ids = [f"dev-{number}" for number in range(30)]
        plain.devices += [{"device_id": each, "product_id": "p1"} for each in ids]
        ended = bench.run(*options("nameless", tmp_path / "ids", ids), code=1)
        assert plain.sent == 1
        assert "names no command id" in ended["devices"][0]["reason"]


def test_what_cannot_be_is_said_in_one_line_and_nothing_is_sent(service, fleet, tmp_path):
    bench = Bench(tmp_path, service.base_url)
    (tmp_path / "empty").write_text("\n# nothing\n")
    before = len(service.requests(*SEND))
    (tmp_path / "ids").write_text(fleet[0])
    one = ("--devices", tmp_path / "ids")
    good = ("--command", '{"command":"ping"}', *one)
    for words, said in (
        (("--command", "{", *one), "give a JSON object"),
        (("--command", "{}", "--devices", tmp_path / "none"), "No such file"),
        (one, "give a JSON object"),
        (("--command", "{}"), "name the devices"),
        (("--command", "{}", "--devices", tmp_path / "empty"), "has no device id"),
        ((*good, "--waves", "1,5%"), "the last one must be 'all'"),
        ((*good, "--waves", "many,all"), "'many' is none"),
        ((*good, "--max-failed", "5"), "is no share"),
        ((*good, "--max-silent", "120%"), "is no share"),
        ((*good, "--name", "../x"), "use letters"),
        (("--resume",), "needs the --name"),
        (("--resume", "--name", "never"), "no rollout to resume"),
        (("--resume", "--name", "never", *good), "leave out --command, --devices"),
    ):
        line = bench.said(*words, code=2)
        assert said in line, (words, line)
        assert "Traceback" not in line
    assert len(service.requests(*SEND)) == before
    assert not list((tmp_path / "state").rglob("*.db"))

    bench.run(*good, "--name", "once", "--max-failed", "100%")
    assert "was begun already" in bench.said(*good, "--name", "once", code=2)
    (tmp_path / "secret_key").write_text("msk_wrong")
    assert "401" in bench.said(*good, "--name", "locked", code=2)
    text = (tmp_path / "config.yaml").read_text().replace(service.base_url, f"http://127.0.0.1:{free_port()}")
    (tmp_path / "config.yaml").write_text(text)
    assert "begun at" in bench.said("--resume", "--name", "once", code=2)
    assert "cannot connect" in bench.said(*good, "--name", "away", code=5)
