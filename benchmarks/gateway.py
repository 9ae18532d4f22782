"""What passes the gateway, beside what the service takes without it, and how quickly a command is at its device.

Service, broker (mosquitto) and gateway are processes of their own on this machine, the service with its request log and
no quota, and no limit for a device. Every reading has an idempotency key and is acknowledged once the service has it.

========  ==========================================================================================================
direct    wrk, 64 connections, one reading a request, at the service itself with the key pair
HTTP      the same at the gateway with the devices' tokens and five connections each: since it collects readings for up
          to half a second, 64 would only wait
MQTT      one foreign client (paho) writes as all devices in turns, 1,000 messages without a receipt at most
push      from the request that creates a command until its device has it over MQTT
========  ==========================================================================================================

At the end the gateway's resident memory, its CPU while nothing happens, and the rows of the service are counted.

    python -m benchmarks.gateway [--seconds 5] [--runs 3] [--devices 400]

Exit codes: 0 all that was acknowledged is there, 2 wrk or mosquitto is missing, 4 readings are missing or twice.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import paho.mqtt.client as paho

from agent.wire import topics
from benchmarks import _rig as rig
from benchmarks._peers import Load, has_wrk, run_wrk, show
from gateway.tokens import FILE_NAME, Tokens, make_token
from simulator.children import ChildProcess, program_path
from tests.support.mosquitto import Mosquitto, end_client, find_mosquitto, mosquitto

CONNECTIONS = 64
CONNECTIONS_OF_DEVICE = 5  # the gateway lets a device have eight requests under way
WITHOUT_RECEIPT = 1_000
COMMANDS = 300
IDLE_S = 10.0
PATIENCE_S = 60.0
# Each thread of wrk has a state of its own; there is one. A new key in each request, and each device in its turn.
SCRIPT = """
local devices = {%s}
local number, run = 0, "%s"
request = function()
    number = number + 1
    local device = devices[number %% #devices + 1]
    local headers = {["content-type"] = "application/json", ["idempotency-key"] = run .. number}
    for name, value in pairs(device.headers) do headers[name] = value end
    local body = '{"device_id":"' .. device.id .. '","sensor_data":{"temperature_c":21.5,"humidity":40.25}}'
    return wrk.format("POST", nil, headers, body)
end
"""


@contextlib.contextmanager
def gateway(folder: Path, service_url: str, broker: Mosquitto, tokens: dict[str, str]) -> Iterator[tuple[str, int]]:
    """A running gateway that knows these devices; its address and its process id."""
    folder.mkdir(mode=0o700)
    new = {device_id: make_token() for device_id in tokens}
    with Tokens(folder / FILE_NAME) as file:
        file.issue(new)
    tokens.update({device_id: token.reveal() for device_id, token in new.items()})
    port = rig.free_port()
    config = {
        "service": {"base_url": service_url},
        "auth": rig.write_keys(folder),
        "state_dir": str(folder),
        "http": {"port": port, "requests_per_minute": 0},
        "mqtt": {"enabled": True, "port": broker.port},
        "metrics": {"enabled": False},
    }
    (folder / "gateway.yaml").write_text(json.dumps(config))
    log = folder / "log"
    child = ChildProcess("gateway", log)
    child.start([str(program_path("device-gateway")), "run", "--config", str(folder / "gateway.yaml")])
    try:
        child.wait_until(lambda: "mqtt=connected" in log.read_text(), "it served", PATIENCE_S)
        assert child.pid is not None
        yield f"http://127.0.0.1:{port}", child.pid
    finally:
        child.end()


class Devices:
    """All devices over one connection to the broker, as no real ones have: a foreign client that is not the limit.

    Attributes:
        stored: readings that were acknowledged.
        took_ms: of each of them so far, from handing it to the client to its receipt.
    """

    def __init__(self, broker: Mosquitto, device_ids: list[str]) -> None:
        self._device_ids = device_ids
        self._changed = threading.Condition()
        self._sent_s: dict[str, float] = {}
        self._commands_s: dict[str, float] = {}
        self._numbers = itertools.count()
        self.stored = 0
        self.took_ms: list[float] = []
        self.client = broker.client("devices")
        self.client.on_message = self._take
        self.client.subscribe([("v1/devices/+/receipts", 1), ("v1/devices/+/commands/+", 1)])
        for device_id in device_ids:
            self.client.publish(topics.status(device_id), '{"status":"online"}', 1, retain=True)

    def write(self, seconds: float) -> Load:
        """Write readings for so long and wait for their receipts; how many a second, and how long a receipt took."""
        began_s, before = time.monotonic(), self.stored
        while time.monotonic() < began_s + seconds:
            number = next(self._numbers)
            with self._changed:
                self._changed.wait_for(lambda: len(self._sent_s) < WITHOUT_RECEIPT, PATIENCE_S)
                self._sent_s[f"k{number}"] = time.perf_counter()
            reading = {"sensor_data": {"temperature_c": 21.5, "humidity": 40.25}, "key": f"k{number}"}
            topic = topics.sensor_data(self._device_ids[number % len(self._device_ids)])
            self.client.publish(topic, json.dumps(reading), 1)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._sent_s, PATIENCE_S):
                raise RuntimeError(f"{len(self._sent_s)} readings had no receipt within {PATIENCE_S:.0f} s")
        per_s, shares = (self.stored - before) / (time.monotonic() - began_s), quantiles(self.took_ms, n=100)
        return Load(per_s, users=len(self._device_ids), p50_ms=shares[49], p99_ms=shares[98])

    def command_ms(self, service_url: str, device_id: str) -> float:
        """From asking the service for a command until its device has it."""
        began_s = time.perf_counter()
        body = {"device_id": device_id, "command_payload": {"command": "ping"}}
        made = rig.call(f"{service_url}/commands/send", body)
        with self._changed:
            if not self._changed.wait_for(lambda: made["id"] in self._commands_s, PATIENCE_S):
                raise RuntimeError(f"command {made['id']} did not come within {PATIENCE_S:.0f} s")
            return 1000 * (self._commands_s[made["id"]] - began_s)

    def _take(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        now_s = time.perf_counter()
        content = json.loads(message.payload)
        with self._changed:
            if "id" in content:
                self._commands_s[content["id"]] = now_s
            for key in content.get("stored", ()):
                self.stored += 1
                self.took_ms.append(1000 * (now_s - self._sent_s.pop(key)))
            self._changed.notify_all()


def wrk(url: str, devices: list[tuple[str, dict[str, str]]], run: str, connections: int, seconds: float) -> Load:
    """Readings of devices in turns, one a request.

    Args:
        url: of the server.
        devices: their ids and the headers that each is known by.
        run: begins the idempotency keys.
        connections: held open; each sends again when it has its answer.
        seconds: of load.
    """
    rows = (
        f'{{id="{device_id}", headers={{' + ", ".join(f'["{name}"]="{value}"' for name, value in headers.items()) + "}}"
        for device_id, headers in devices
    )
    script = SCRIPT % (", ".join(rows), run)
    return run_wrk(f"{url}/sensor-data", script, connections=connections, seconds=seconds)


def measure(folder: Path, program: str, seconds: float, runs: int, devices: int) -> int:
    """Load in turns, the table, and the count; the exit code."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(rig.service(folder / "service"))
        broker = stack.enter_context(mosquitto(program, folder / "broker", ("max_queued_messages 20000",)))
        tokens = dict.fromkeys(rig.make_devices(own.url, devices), "")
        url, pid = stack.enter_context(gateway(folder / "gateway", own.url, broker, tokens))
        writer = Devices(broker, list(tokens))
        stack.callback(end_client, writer.client)
        by_key = [(device_id, rig.KEYS) for device_id in tokens]
        by_token = [(device_id, {"authorization": f"Bearer {token}"}) for device_id, token in tokens.items()]
        direct, http, mqtt = list[Load](), list[Load](), list[Load]()
        for turn in range(runs):
            direct.append(wrk(own.url, by_key, f"d{turn}-", CONNECTIONS, seconds))
            http.append(wrk(url, by_token, f"h{turn}-", CONNECTIONS_OF_DEVICE * devices, seconds))
            mqtt.append(writer.write(seconds))
        rate = show({"direct": direct, "HTTP": http, "MQTT": mqtt})
        print(", ".join(f"{name} {rate[name] / rate['direct']:.2f} x direct" for name in ("HTTP", "MQTT")))
        turns = itertools.islice(itertools.cycle(tokens), COMMANDS)
        shares = quantiles([writer.command_ms(own.url, device_id) for device_id in turns], n=100)
        print(f"push, {COMMANDS} commands: p50 {shares[49]:.1f} ms, p99 {shares[98]:.1f} ms")
        before_s = rig.cpu_s(pid)
        time.sleep(IDLE_S)
        idle = (rig.cpu_s(pid) - before_s) / IDLE_S
        print(f"gateway: {rig.resident_bytes(pid) / 1e6:.0f} MB, idle {idle:.1%} of a core")
    acknowledged = writer.stored + sum(load.requests for load in (*direct, *http))
    rows = rig.count_readings(folder / "service")
    # wrk ends while each connection has a request under way: these may be there or not.
    spare = (CONNECTIONS + CONNECTIONS_OF_DEVICE * devices) * runs
    print(f"acknowledged {acknowledged:,}, rows {rows:,} (up to {spare} were under way when wrk ended)")
    return 0 if acknowledged <= rows <= acknowledged + spare else 4


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=5, help="length of one run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way")
    parser.add_argument("--devices", type=int, default=400)
    given = parser.parse_args()
    program = find_mosquitto()
    if not has_wrk() or program is None:
        print("this needs wrk and mosquitto: apt-get install wrk mosquitto", file=sys.stderr)
        return 2
    print(f"gateway: {given.devices} devices\n{rig.machine()}\n")
    with tempfile.TemporaryDirectory() as name:
        return measure(Path(name), program, given.seconds, given.runs, given.devices)


if __name__ == "__main__":
    sys.exit(main())
