"""Two gateways with one key behind one broker: they share the polling, and either takes what any device sends."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml

from agent.wire import topics
from agent.wire.auth import KeyPair
from agent.wire.registration import RegisterDevice
from agent.wire.secret import Secret
from agent.wire.sending import SendCommand
from gateway.core.share import Share
from gateway.devices.token_file import FILE_NAME, DeviceTokenFile
from gateway.devices.tokens import make_token
from simulator.pytest_plugin.control import ServiceUnderTest
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct
from tests.e2e.agent_bench import API_KEY, SECRET_KEY, AgentProcess
from tests.mosquitto import Mosquitto, end_client

SOON_S = 60.0
DEVICES = 12
MORE_ROUNDS = 5
REQUESTS = 20_000
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


class Fleet:
    """Devices that take each command once and answer it; one connection plays all of them."""

    def __init__(self, broker: Mosquitto) -> None:
        self.deliveries: Counter[str] = Counter()
        self.receipts: set[str] = set()
        self.notices: Counter[str] = Counter()
        self._changed = threading.Condition()
        subscribed = threading.Event()
        self.client = broker.client("fleet")
        self.client.on_message = self._arrived
        self.client.on_subscribe = lambda *_: subscribed.set()
        filters = [topics.commands_filter("x"), topics.receipts("x"), topics.notice("x")]
        self.client.subscribe([(each.replace("/x/", "/+/"), 1) for each in filters])
        assert subscribed.wait(SOON_S)

    def publish(self, topic: str, value: Any) -> None:
        self.client.publish(topic, value if isinstance(value, bytes) else json.dumps(value), 1)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, SOON_S), (self.deliveries, self.receipts)

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        with self._changed:
            topic = topics.parse(message.topic)
            if topic.kind is topics.TopicKind.RECEIPTS:
                self.receipts.update(json.loads(message.payload)["stored"])
            elif topic.kind is topics.TopicKind.NOTICE:
                self.notices[topic.device_id] += 1
            elif topic.command_id is not None:
                self.deliveries[topic.command_id] += 1
                if self.deliveries[topic.command_id] == 1:
                    result = {"status": "succeeded", "result": {"by": topic.device_id}, "key": topic.command_id}
                    self.publish(topics.result(topic.device_id, topic.command_id), result)
            self._changed.notify_all()


class Site:
    """A service, a broker, a fleet, and two gateways, each with a key pair by which the service's log knows it."""

    def __init__(self, folder: Path, broker: Mosquitto, stack: ExitStack) -> None:
        self._folder, self._broker, self._stack = folder, broker, stack
        config = ServiceConfig(
            api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0, keep_requests=REQUESTS, log_level="warning"
        )
        url = stack.enter_context(RunningService(config)).base_url
        self.service = ServiceUnderTest(url)
        stack.callback(self.service.close)
        self.client = stack.enter_context(ServiceClient(url, KeyPair(API_KEY, Secret(SECRET_KEY))))
        self.device_ids = self._register()
        self.fleet = Fleet(broker)
        stack.callback(end_client, self.fleet.client)
        self.keys = [f"mk_gateway_{index}" for index in range(2)]
        for name, text in (*((key, key) for key in self.keys), ("secret_key", SECRET_KEY)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        for key in self.keys:
            pair = {"api_key": key, "secret_key": SECRET_KEY}
            self.service.control.post(f"accounts/{API_KEY}/keys", pair)
        tokens = {device_id: make_token(secrets.token_bytes) for device_id in self.device_ids}
        for index in range(2):
            self._configure(index, tokens)
        self.gateways = [self.start(index) for index in range(2)]

    def start(self, index: int) -> AgentProcess:
        gateway = AgentProcess(self._folder / f"gateway-{index}.yaml", module="gateway.cli")
        self._stack.callback(gateway.close)
        gateway.wait_for("mqtt=connected", SOON_S)
        gateway.wait_for("are served", SOON_S)
        return gateway

    def own(self, index: int) -> set[str]:
        return set(filter(Share(index, 2).has, self.device_ids))

    def polled(self, index: int, **filters: str) -> list[str]:
        """Devices whose commands a gateway has asked for, once for each time."""
        return self._asked_about("GET", "/devices/{device_id}/commands", index, filters)

    def reported(self, index: int) -> list[str]:
        """Devices whose results a gateway has sent, once for each."""
        return self._asked_about("POST", "/devices/{device_id}/commands/{command_id}/result", index, {})

    def _asked_about(self, method: str, template: str, index: int, filters: dict[str, str]) -> list[str]:
        found = self.service.requests(method, template, api_key=self.keys[index], **filters)
        return [one["path"].split("/")[2] for one in found]

    def send_commands(self) -> dict[str, str]:
        """One for each device; command id -> device id."""
        sent = [SendCommand(device_id=each, command_payload={"command": "ping"}) for each in self.device_ids]
        return {str(self.client.send_command(each).id): each.device_id for each in sent}

    def succeeded(self) -> Counter[str]:
        """Command id -> 1 for each that the service knows as succeeded, by the device that it was for."""
        records = [record for each in self.device_ids for record in self.client.device_commands(each).records]
        for record in records:
            assert record.status != "succeeded" or record.result == {"by": record.device_id}
        return Counter(str(record.id) for record in records if record.status == "succeeded")

    def wait_until(self, is_so: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + SOON_S
        while not is_so():
            assert time.monotonic() < deadline_s, [gateway.lines for gateway in self.gateways]
            time.sleep(0.1)

    def let_both_ask_again(self) -> None:
        """Each gateway has a list of each of its devices that was asked for after now."""
        since = self.service.since_now()

        def asked_twice(index: int) -> bool:
            new = Counter(self.polled(index, **since))
            return all(new[device_id] >= 2 for device_id in self.own(index))

        self.wait_until(lambda: asked_twice(0) and asked_twice(1))

    def let_all_say_that_they_are_online(self) -> None:
        """And wait until the gateways have heard it: each device gets a notice from its own one."""
        greetings = Counter(self.device_ids)
        self.fleet.wait_until(lambda: self.fleet.notices >= greetings)
        for device_id in self.device_ids:
            self.fleet.publish(topics.status(device_id), b"online")
        self.fleet.wait_until(lambda: self.fleet.notices >= greetings + greetings)

    def send_readings(self, name: str) -> None:
        """One from each device, and wait for its receipt."""
        keys = {f"{name}-{device_id}" for device_id in self.device_ids}
        for device_id in self.device_ids:
            reading = {"sensor_data": {name: 1}, "key": f"{name}-{device_id}"}
            self.fleet.publish(topics.sensor_data(device_id), reading)
        self.fleet.wait_until(lambda: keys <= self.fleet.receipts)

    def stored(self, name: str) -> list[str]:
        records = self.client.sensor_data()
        return sorted(str(record.device_id) for record in records if name in record.sensor_data)

    def _register(self) -> list[str]:
        product = self.client.create_product(NewProduct(name="shared"))
        wanted = [
            RegisterDevice(user_id="u", product_id=product.product_id, device_identifier=f"SN-{number}")
            for number in range(DEVICES)
        ]
        return sorted(self.client.register_device(each).device_id for each in wanted)

    def _configure(self, index: int, tokens: dict[str, Any]) -> None:
        state = self._folder / f"state-{index}"
        state.mkdir(mode=0o700)
        with DeviceTokenFile(state / FILE_NAME) as file:
            file.issue(tokens, time.time())
        sections = {
            "service": {"base_url": self.service.base_url},
            "auth": {
                "api_key_file": str(self._folder / self.keys[index]),
                "secret_key_file": str(self._folder / "secret_key"),
            },
            "state_dir": str(state),
            "share": {"index": index, "count": 2},
            "http": {"enabled": False},
            "mqtt": {"enabled": True, "port": self._broker.port, "session_expiry_s": 0},
            "commands": {"events": "off", "fast_s": 0.5, "idle_s": 1, "reconcile_s": 5},
            "readings": {"gather_s": 0.1},
            "metrics": {"enabled": False},
        }
        (self._folder / f"gateway-{index}.yaml").write_text(yaml.safe_dump(sections))


@pytest.fixture
def site(tmp_path: Path, start_mosquitto: Callable[..., Mosquitto]) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, start_mosquitto("log_type all"), stack)


def test_each_command_is_effected_once_each_poll_is_made_by_one_and_what_one_misses_the_other_takes(site):
    assert all(site.own(index) for index in range(2))
    first = site.send_commands()
    site.wait_until(lambda: set(site.succeeded()) == set(first))
    site.send_readings("before")
    site.wait_until(lambda: len(site.stored("before")) >= DEVICES)

    # Which of the two takes a result is the broker's choice: on a busy machine one may take all of the first round's.
    for _ in range(MORE_ROUNDS):
        if all(_taken_for_the_other(site, index) for index in range(2)):
            break
        first |= site.send_commands()
        site.wait_until(lambda sent=frozenset(first): set(site.succeeded()) == sent)
    for index in range(2):
        assert set(site.polled(index)) == site.own(index), "a gateway asks about its own devices only"
        assert _taken_for_the_other(site, index), "results of the other's commands go through this one, too"

    # The holder learns from its next list that a command has ended, whoever took the result: it is not sent again.
    site.let_both_ask_again()
    # Heard only after the next commands had been published, it would bring those a second time.
    site.let_all_say_that_they_are_online()
    second = site.send_commands()
    site.wait_until(lambda: set(site.succeeded()) == {*first, *second})
    assert site.fleet.deliveries == Counter([*first, *second])

    _one_dies_and_comes_back(site, {*first, *second})
    assert site.stored("before") == site.device_ids
    assert site.stored("during") == site.device_ids


def _taken_for_the_other(site: Site, index: int) -> set[str]:
    """Devices of the other gateway whose results went through this one."""
    return set(site.reported(index)) - site.own(index)


def _one_dies_and_comes_back(site: Site, ended: set[str]) -> None:
    site.let_both_ask_again()
    site.gateways[0].kill()
    commands = site.send_commands()
    of_the_living = {command_id for command_id, device_id in commands.items() if device_id in site.own(1)}
    site.wait_until(lambda: set(site.succeeded()) >= ended | of_the_living)
    site.send_readings("during")
    site.wait_until(lambda: len(site.stored("during")) >= DEVICES)
    assert set(site.succeeded()) == ended | of_the_living, "the commands of the dead one's devices wait"
    site.gateways[0] = site.start(0)
    site.wait_until(lambda: set(site.succeeded()) == {*ended, *commands})
    # A gateway that has just connected may publish one twice; the device takes it once.
    assert set(site.fleet.deliveries) == {*ended, *commands}
    assert all(site.fleet.deliveries[command_id] == 1 for command_id in ended)
