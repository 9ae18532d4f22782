"""Service, gateway and agent as processes that are stopped (SIGSTOP) for longer than a command may wait: it never runs.

The device at the gateway is one that judges nothing itself: what the gateway sends it counts as handed out.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
import yaml

from agent.wire import topics
from agent.wire.models import CommandResult
from gateway.client import RegisterDevice, SendCommand
from gateway.tokens import FILE_NAME as TOKENS
from gateway.tokens import Tokens, make_token
from simulator.children import ChildProcess, program_path
from tests.conftest import require_program
from tests.support.mosquitto import end_client, find_mosquitto
from tests.system.agent_bench import wait_until
from tests.system.fault.gateway_rig import GatewayRig

pytestmark = pytest.mark.long

SOON_S = 60.0
TTL_S = 2
BEYOND_S = 1.5
"""How long after a command's end a process goes on: more than the second that a ``Date`` is cut to."""
OVER = {"expired", "timed_out", "rejected"}


class Still(GatewayRig):
    """The rig with two further devices: an agent over HTTP, and one that talks to the gateway by hand."""

    def __init__(self, folder: Path, mosquitto: str) -> None:
        super().__init__(folder, mosquitto)
        self.http_agent = self._children.add(ChildProcess("http agent", folder / "http-agent.log"))
        self.by_hand_id = ""
        self.by_hand_token = ""

    def start_agents(self) -> None:
        """Both; they are waited for."""
        self.start_agent()
        program = str(program_path("device-agent"))
        self.http_agent.start([program, "run", "--config", str(self.folder / "http-agent.yaml")])
        for agent, log in ((self.agent, "agent.log"), (self.http_agent, "http-agent.log")):
            path = self.folder / log
            agent.wait_until(lambda path=path: "agent=ready" in path.read_text(), "it was ready", SOON_S)

    def send(self, device_id: str, ttl_s: int | None = TTL_S, **payload: Any) -> str:
        """A command's id."""
        command = SendCommand(device_id=device_id, command_payload={"command": "append", **payload}, ttl_seconds=ttl_s)
        with self.client() as client:
            found = client.send_command(command).id
        assert found is not None
        return found

    def status_of(self, device_id: str, command_id: str) -> str | None:
        """As the service shows it."""
        with self.client() as client:
            records = client.device_commands(device_id).records
        return next((record.status for record in records if record.id == command_id), None)

    def has_run(self, command_id: str) -> bool:
        """Its program has begun, by the program's own file."""
        return command_id in self.runs()

    def _register(self) -> None:
        super()._register()
        with self.client() as client:
            product = next(iter(client.products()))
            device = RegisterDevice(
                user_id="user-1",
                product_id=product.product_id,
                device_name="by hand",
                device_identifier="by-hand",
                qr_info={},
            )
            self.by_hand_id = client.register_device(device).device_id

    def _configure(self) -> None:
        super()._configure()
        through_gateway = yaml.safe_load((self.folder / "agent.yaml").read_text())
        keys = {name: str(self.folder / name.removesuffix("_file")) for name in ("api_key_file", "secret_key_file")}
        over_http = {name: through_gateway[name] for name in ("commands", "executables", "outbox", "safe_mode")} | {
            "service": {"base_url": f"http://127.0.0.1:{self._port}"},
            "device": {"device_id": self.load_device_id},
            "auth": {"allow_secret_key_on_device": True, **keys},
            "state_dir": str(self.folder / "http-state"),
        }
        del through_gateway["sensors"]
        (self.folder / "agent.yaml").write_text(yaml.safe_dump(through_gateway))
        (self.folder / "http-agent.yaml").write_text(yaml.safe_dump(over_http))
        token = make_token()
        with Tokens(self.folder / "gateway" / TOKENS) as file:
            file.issue({self.by_hand_id: token})
        self.by_hand_token = token.token.reveal()


class ByHand:
    """The device that takes whatever the gateway gives it, over HTTP and over MQTT at once.

    Attributes:
        listed: when an answer to a poll came, and the ids in it.
        published: when an id came over MQTT.
    """

    def __init__(self, rig: Still) -> None:
        self.device_id = rig.by_hand_id
        self.listed: list[tuple[float, set[str]]] = []
        self.published: list[tuple[float, str]] = []
        self._url = f"http://127.0.0.1:{rig.http_port}"
        self._headers = {"Authorization": f"Bearer {rig.by_hand_token}"}
        self._stop = threading.Event()
        self._mqtt = rig.broker.client(f"by-hand-{secrets.token_hex(4)}")
        subscribed = threading.Event()
        self._mqtt.on_subscribe = lambda *_: subscribed.set()
        self._mqtt.on_message = self._arrived
        self._mqtt.subscribe(topics.commands_filter(self.device_id), 1)
        assert subscribed.wait(SOON_S)
        self._threads = [threading.Thread(target=self._poll, args=(wait_s,)) for wait_s in (0, 20)]
        for thread in self._threads:
            thread.start()

    def come_online(self) -> None:
        """What is open is published again after this."""
        self._mqtt.publish(topics.status(self.device_id), "online", 1).wait_for_publish(SOON_S)

    def has_both(self, command_id: str) -> bool:
        """It came over either way."""
        return any(command_id in ids for _, ids in self.listed) and any(id_ == command_id for _, id_ in self.published)

    def given_after(self, at_s: float) -> set[str]:
        """What came after this instant, epoch seconds."""
        listed = [ids for when_s, ids in self.listed if when_s > at_s]
        return set().union(*listed) | {id_ for when_s, id_ in self.published if when_s > at_s}

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SOON_S)
        end_client(self._mqtt)

    def _poll(self, wait_s: int) -> None:
        """One poll after the other; a held one ends with the next change of the list."""
        etag = ""
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=SOON_S, trust_env=False) as http:
            while not self._stop.wait(0.05):
                path = f"/devices/{self.device_id}/commands?status=open&wait={min(wait_s, 1) if self.listed else 0}"
                with contextlib.suppress(httpx.TransportError):
                    answer = http.get(path, headers={"If-None-Match": etag} if etag and wait_s else {})
                    etag = answer.headers.get("etag", "")
                    if answer.status_code == httpx.codes.OK:
                        self.listed.append((time.time(), {each["id"] for each in answer.json()["data"]}))

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.published.append((time.time(), str(json.loads(message.payload)["id"])))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Still]:
    mosquitto = find_mosquitto() or require_program("mosquitto")
    with Still(tmp_path_factory.mktemp("still"), mosquitto) as rig:
        rig.start_gateway()
        rig.wait_for_gateway()
        rig.start_agents()
        yield rig


@pytest.fixture
def by_hand(rig: Still) -> Iterator[ByHand]:
    device = ByHand(rig)
    yield device
    device.close()


@contextlib.contextmanager
def stopped(process: ChildProcess) -> Iterator[None]:
    """It stands still for the length of the block."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def wait_for_end(sent_s: float) -> float:
    """Until a command that was sent at this instant is over for certain; now, epoch seconds."""
    wait_until(lambda: time.time() > sent_s + TTL_S + BEYOND_S, SOON_S)
    return time.time()


@pytest.mark.parametrize("still", ["service", "gateway"])
def test_the_gateway_hands_out_nothing_late_after_service_or_gateway_stood_still(rig, by_hand, still):
    process = {"service": rig.service, "gateway": rig.gateway}[still]
    known = rig.send(by_hand.device_id)
    wait_until(lambda: by_hand.has_both(known) or _is_over(rig, by_hand.device_id, known), SOON_S)
    if still == "service":
        late = rig.send(by_hand.device_id)
    with stopped(process):
        if still == "gateway":
            late = rig.send(by_hand.device_id)  # its stream of commands has it, unread
            by_hand.come_online()
        over_s = wait_for_end(time.time())
    by_hand.come_online()
    alive = rig.send(by_hand.device_id, None)
    wait_until(lambda: by_hand.has_both(alive), SOON_S)
    assert not {known, late} & by_hand.given_after(over_s), "handed out after its end"
    for command in (known, late):
        wait_until(lambda command=command: _is_over(rig, by_hand.device_id, command), SOON_S)
    with rig.client() as client:
        client.report_result(by_hand.device_id, alive, CommandResult(status="succeeded"))


def test_an_agent_that_stood_still_starts_nothing_that_ended_meanwhile(rig):
    agents = {rig.load_device_id: rig.http_agent, rig.device_id: rig.agent}
    ended: list[tuple[str, str]] = []
    for device_id in agents:
        first = rig.send(device_id, None, seconds=3 * TTL_S)
        wait_until(lambda first=first: rig.has_run(first), SOON_S)
    for device_id, log in zip(agents, ("http-agent.log", "agent.log"), strict=True):
        waiting = rig.send(device_id)
        ended.append((device_id, waiting))
        line, path = f"command={waiting} handler=append state=received", rig.folder / log
        # It is in the journal; or this machine is so slow that its time is over already.
        wait_until(lambda line=line, path=path: line in path.read_text() or _is_over(rig, *ended[-1]), SOON_S)
        assert not rig.has_run(waiting), "it should wait for its lane"
    with contextlib.ExitStack() as stack:
        for agent in agents.values():
            stack.enter_context(stopped(agent))
        ended += [(device_id, rig.send(device_id)) for device_id in agents]
        wait_for_end(time.time())
    for device_id in agents:
        alive = rig.send(device_id, None, seconds=0)
        wait_until(lambda device_id=device_id, alive=alive: rig.status_of(device_id, alive) == "succeeded", SOON_S)
    for device_id, command in ended:
        assert not rig.has_run(command), "started after its end"
        wait_until(lambda device_id=device_id, command=command: _is_over(rig, device_id, command), SOON_S)


def _is_over(rig: Still, device_id: str, command_id: str) -> bool:
    return rig.status_of(device_id, command_id) in OVER
