"""The client and the agent at a server of the specification that chose otherwise, one choice after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agent.errors import NotFound
from agent.wire.models import PostSensorData
from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice, SendCommand
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.system.agent_bench import AgentProcess, wait_until
from tests.system.plain_server import Choices, Plain, plain_server

COUNT = 7
CHOICES = [
    Choices(),
    *(Choices(list_shape=shape) for shape in ("items", "data", "results", "named")),
    *(Choices(paging=paging, page=3) for paging in ("next", "cursor", "link")),
    Choices(paging="offset", page=3, list_shape="data"),
    *(Choices(id_name=name) for name in ("id", "command_id")),
    Choices(id_type="number"),
    *(Choices(status_words=words) for words in ("spec", "own")),
    Choices(command_list="once"),
    *(Choices(time_format=form) for form in ("rfc3339", "epoch", "epoch_ms", "http")),
    Choices(results=404),
    *(Choices(error_shape=shape, results=404) for shape in ("text", "html")),
]
"""Each choice by itself: list_shape, paging, id_name, id_type, status_words, command_list, time_format, results and
error_shape."""


def shown(choices: Choices) -> str:
    plain = Choices()
    return ",".join(f"{k}={v}" for k, v in vars(choices).items() if v != getattr(plain, k)) or "plain"


def client_of(server: Plain) -> ServiceClient:
    return ServiceClient(server.base_url, KeyPair("mk_key", Secret("msk_secret")))


def register(client: ServiceClient, number: int) -> None:
    product_id = next(iter(client.products())).product_id
    client.register_device(
        RegisterDevice(
            user_id="u1", product_id=product_id, device_name="d", device_identifier=f"SN-{number}", qr_info={}
        )
    )


@pytest.mark.parametrize("choices", CHOICES, ids=shown)
def test_the_client_reads_every_list_to_its_end(choices: Choices):
    with plain_server(choices) as server, client_of(server) as client:
        client.create_product(NewProduct(name="p"))
        for number in range(COUNT):
            register(client, number)
        devices = [device.device_id for device in client.user_devices("u1")]
        assert devices == [device.device_id for device in client.devices()] == [f"dev-{n}" for n in range(COUNT)]
        for number in range(COUNT):
            client.send_command(SendCommand(device_id="dev-1", command_payload={"number": number}))
            client.post_sensor_data(PostSensorData(device_id="dev-1", sensor_data={"number": number}))
        commands = client.device_commands("dev-1")
        assert not commands.malformed
        assert [record.command_payload["number"] for record in commands.records] == list(range(COUNT))
        assert len({record.id for record in commands.records}) == COUNT
        assert [row.sensor_data["number"] for row in client.sensor_data()] == list(range(COUNT))
        with pytest.raises(NotFound):
            client.dashboard("nobody")
    assert server.beyond == []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name, text in {"api_key": "mk_key", "secret_key": "msk_secret"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path / "agent.yaml"


def write(config: Path, server: Plain) -> None:
    folder = config.parent
    members = {
        "service": {"base_url": server.base_url},
        "auth": {
            "mode": "key_pair",
            "allow_secret_key_on_device": True,
            "api_key_file": str(folder / "api_key"),
            "secret_key_file": str(folder / "secret_key"),
        },
        "device": {"device_id": "dev-0", "product_id": "prod-0"},
        "state_dir": str(folder / "state"),
        "commands": {"poll": {"spread_s": 0, "idle_s": 0.2, "fast_s": 0.2}},
        "executables": {"append": {"argv": ["/bin/sh", str(folder / "append"), str(effects_of(config))]}},
        "sensors": [{"name": "s", "type": "simulated", "interval_s": 0.2}],
    }
    (folder / "append").write_text('echo "$(cat)" >>"$1"\n')
    config.write_text(yaml.safe_dump(members))


def effects_of(config: Path) -> Path:
    return config.with_name("effects")


def effects(config: Path) -> list[int]:
    """The numbers of the commands that ran, one for each run."""
    path = effects_of(config)
    return sorted(json.loads(line)["number"] for line in path.read_text().splitlines()) if path.exists() else []


@pytest.mark.long
@pytest.mark.parametrize("choices", CHOICES, ids=shown)
def test_the_agent_runs_each_command_once_and_its_readings_arrive(choices: Choices, config: Path):
    with plain_server(choices) as server, client_of(server) as client:
        client.create_product(NewProduct(name="p"))
        register(client, 0)
        write(config, server)
        for number in (-1, -2):  # a list without states may have it for ever: history, and not run
            client.send_command(SendCommand(device_id="dev-0", command_payload={"command": "append", "number": number}))
        agent = AgentProcess(config)
        try:
            wait_until(lambda: server.polls > 1)
            for number in range(COUNT):
                client.send_command(
                    SendCommand(device_id="dev-0", command_payload={"command": "append", "number": number})
                )
            wait_until(lambda: len(effects(config)) >= COUNT)
            if choices.results == 201:
                wait_until(lambda: len(server.results) >= COUNT)
            polls, stored = server.polls, len(server.readings)
            wait_until(lambda: server.polls > polls + 2 and len(server.readings) > stored)
            assert agent.terminate()[0] == 0
        finally:
            agent.close()
    assert effects(config) == list(range(COUNT))
    if choices.results == 201:
        statuses = [row["data_payload"]["status"] for row in server.results]
        assert statuses.count("succeeded") == COUNT, statuses
    assert server.beyond == []
