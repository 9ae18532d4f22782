"""The service as a process: how it starts, what it says, how it ends, and that no answered write is lost to kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from simulator.wire.limits import OPEN_COMMANDS_MAX
from tests.support.processes import run_module

pytestmark = pytest.mark.long

PROGRAM = [sys.executable, "-m", "simulator.cli", "service"]
KEYS = {"x-api-key": "mk_test", "x-secret-key": "msk_test"}
WRITERS, WATCHED = 200, 8
KILLS = int(os.environ.get("SERVICE_KILLS", "2"))


def _start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLEET_SIMULATOR_SERVICE_PORT": "0", **environment},
    )


def _greeting(process: subprocess.Popen[str]) -> dict[str, str]:
    """What it prints until it is ready: label -> rest of the line."""
    told = {}
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            return told
        told[line[:11].strip()] = line[11:].strip()
    raise AssertionError(process.stderr.read())


@contextmanager
def _program(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    process = _start(*arguments, **environment)
    try:
        yield process, _greeting(process)
    finally:
        process.kill()
        process.communicate()


def _client(told: dict[str, str]) -> httpx.Client:
    return httpx.Client(base_url=told["service"], headers=KEYS, trust_env=False, timeout=120)


def _device(http: httpx.Client, product_id: str, identifier: str) -> str:
    body = {"user_id": "u", "product_id": product_id, "device_identifier": identifier}
    return http.post("/onboarding/device", json=body).json()["device_id"]


def _refused(*arguments: str, **environment: str) -> str:
    process = _start(*arguments, **environment)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    assert "Traceback" not in errors
    return errors.strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_long_before_the_polls_that_it_holds_would_end(number):
    given = {"FLEET_SIMULATOR_SERVICE_API_KEY": "mk_test", "FLEET_SIMULATOR_SERVICE_SECRET_KEY": "msk_test"}
    with _program(**given) as (process, told), ThreadPoolExecutor() as pool, _client(told) as http:
        product_id = http.post("/products", json={"name": "p"}).json()["product_id"]
        url = f"{told['service']}/devices/{_device(http, product_id, 'd')}/commands?status=open&wait=30"
        headers = {**KEYS, "if-none-match": "*"}
        held = [pool.submit(httpx.get, url, headers=headers, trust_env=False, timeout=60) for _ in range(4)]
        # The four are on their way, and the first is there; one that comes late is refused or answered too.
        while not http.get("/devices?status=online").json()["data"]:
            assert not any(future.done() for future in held)
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(60) == 0
        assert time.monotonic() - began < 25
        # A poll that was late, on a busy machine, came to a closed door.
        ends = {_status_or_none(future) for future in held}
        assert 304 in ends
        assert ends <= {304, None}


def _status_or_none(answer: Future[httpx.Response]) -> int | None:
    """What a request was answered with; None when nobody took it."""
    try:
        return answer.result(60).status_code
    except httpx.ConnectError:
        return None


def test_keys_are_shown_on_the_first_start_only_and_the_curl_line_works(tmp_path):
    data = ("--data", str(tmp_path / "data"))
    with _program(*data) as (_, told):
        secret = told["secret key"].split()[0]
        keys = {"x-api-key": told["api key"], "x-secret-key": secret}
        assert secret in told["try"]
        assert httpx.get(f"{told['service']}/products", headers=keys, trust_env=False, timeout=120).status_code == 200
        command = re.sub("^curl ", "curl --silent --fail ", told["try"])
        if subprocess.run(["which", "curl"], capture_output=True, check=False).returncode == 0:
            assert '"data":[]' in subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    with _program(*data) as (_, told):
        assert "secret key" not in told
        assert told["api key"] == keys["x-api-key"]
        assert httpx.get(f"{told['service']}/products", headers=keys, trust_env=False, timeout=120).status_code == 200


def test_an_address_that_cannot_be_listened_on_is_one_line_and_exit_code_2():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert _refused("--port", str(port)).startswith(f"error: port {port} on 127.0.0.1 is in use")
    assert _refused("--host", "192.0.2.1").startswith("error: cannot listen on 192.0.2.1")


def test_a_variant_is_answered_shown_and_kept_and_the_secret_key_comes_from_a_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("msk_test\n")
    data = ("--data", str(tmp_path / "data"), "--api-key", "mk_test", "--secret-key-file", str(secret))
    with _program(*data, "--variant", "plain", "--variant", "list_shape=bare,id_name=_id") as (_, told):
        assert "list_shape=bare" in told["variant"]
        assert "msk_test" not in str(told)
        assert httpx.get(f"{told['service']}/products", headers=KEYS, trust_env=False, timeout=120).json() == []
    with _program(*data) as (_, told):
        assert "list_shape=bare" in told["variant"]
    with _program(*data, "--variant", "complete") as (_, told):
        assert "variant" not in told


def test_every_option_has_an_environment_variable(tmp_path):
    environment = {
        "FLEET_SIMULATOR_SERVICE_HOST": "127.0.0.1",
        "FLEET_SIMULATOR_SERVICE_DATA": str(tmp_path),
        "FLEET_SIMULATOR_SERVICE_API_KEY": "mk_test",
        "FLEET_SIMULATOR_SERVICE_SECRET_KEY": "msk_test",
        "FLEET_SIMULATOR_SERVICE_RATE_LIMIT": "1",
        "FLEET_SIMULATOR_SERVICE_VALIDATE_COMMANDS": "1",
        "FLEET_SIMULATOR_SERVICE_NO_CONTROL": "1",
        "FLEET_SIMULATOR_SERVICE_LOG_LEVEL": "error",
    }
    with _program(**environment) as (_, told):
        assert told["data"] == str(tmp_path)
        assert httpx.get(f"{told['service']}/_emulator/health", trust_env=False, timeout=120).status_code == 401
        statuses = {
            httpx.get(f"{told['service']}/products", headers=KEYS, trust_env=False, timeout=120).status_code
            for _ in "abcd"
        }
        assert 429 in statuses


class Writers:
    """Many writers at once, over several lives of a service.

    The first ones post to a device each, which a rule watches; all others' readings are of one device.

    Attributes:
        answered: kind -> ids of everything that was answered.
        unanswered: writer -> its reading that had a key and no answer; it is sent again in the next life.
    """

    def __init__(self, http: httpx.Client) -> None:
        product_id = http.post("/products", json={"name": "p"}).json()["product_id"]
        *self.watched, self.device_id = [_device(http, product_id, f"d{number}") for number in range(WATCHED + 1)]
        actions = [
            {"type": "record", "table_name": "command_results", "data_payload": {"command_id": "-", "status": "hot"}},
            {"type": "command", "command_payload": {"command": "cool"}},
        ]
        rule = {"name": "hot", "trigger": {"reading": "hot", "op": ">", "value": 60}, "actions": actions}
        assert http.post("/rules", json={"product_id": product_id, **rule}).status_code == 201
        self.answered: dict[str, set[str]] = {"readings": set(), "products": set(), "commands": set()}
        self.unanswered: dict[int, dict[str, int]] = {}
        self.life = 0

    async def write_until_it_dies(self, url: str, process: subprocess.Popen[str]) -> None:
        self.life += 1
        self.enough, self.enough_at = asyncio.Event(), len(self.answered["readings"]) + WRITERS
        self.without_two = set(range(WATCHED))
        writers = [asyncio.create_task(self._write_on_its_own(url, number)) for number in range(WRITERS)]
        await asyncio.wait_for(self.enough.wait(), 120)
        await asyncio.sleep(random.uniform(0, 0.2))  # any moment between two commits is a good one to die at
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(*writers)

    async def _write_on_its_own(self, url: str, number: int) -> None:
        # A client each: one that has 200 connections looks at all of them for each request.
        async with httpx.AsyncClient(base_url=url, headers=KEYS, trust_env=False, timeout=120) as http:
            with contextlib.suppress(httpx.TransportError):
                await self._write(http, number)

    async def _write(self, http: httpx.AsyncClient, number: int) -> None:
        if number in self.unanswered:
            await self._post_once(http, number, self.unanswered[number])
        for turn in range(10_000):
            if number < WATCHED:
                values = {"hot": 100 if (turn + number) % 2 else 0, "life": self.life}
                await self._post_reading(http, self.watched[number], values, {})
                if turn:
                    self.without_two.discard(number)
            elif number % 20 == 0:
                answer = await http.post("/products", json={"name": f"{number}-{turn}"})
                self.answered["products"].add(answer.json()["product_id"])
            elif number % 20 == 1 and turn == 0:
                body = {"device_id": self.device_id, "command_payload": {"n": number}}
                answer = await http.post("/commands/send", json=body)
                if answer.status_code == 202:  # the device fetches none, so after a while its queue is full
                    self.answered["commands"].add(answer.json()["id"])
            else:
                await self._post_once(http, number, {"life": self.life, "number": number, "turn": turn})

    async def _post_once(self, http: httpx.AsyncClient, number: int, values: dict[str, int]) -> None:
        self.unanswered[number] = values
        key = "-".join(str(value) for value in values.values())
        await self._post_reading(http, self.device_id, values, {"idempotency-key": key})
        del self.unanswered[number]

    async def _post_reading(
        self, http: httpx.AsyncClient, device_id: str, values: dict[str, int], headers: dict[str, str]
    ) -> None:
        body = {"device_id": device_id, "sensor_data": values}
        answer = await http.post("/sensor-data", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        self.answered["readings"].add(answer.json()["id"])
        if len(self.answered["readings"]) >= self.enough_at and not self.without_two:
            self.enough.set()


def _all(http: httpx.Client, url: str) -> list[dict[str, Any]]:
    found = []
    while url:
        answer = http.get(url)
        found += answer.json()["data"]
        url = answer.links["next"]["url"] if "next" in answer.links else ""
    return found


def test_kill_9_under_200_writers_loses_nothing_stores_nothing_twice_and_leaves_no_rule_half_done(tmp_path: Path):
    """What was answered is there, each reading with a key once, and readings with all that rules made of them."""
    data = ("--data", str(tmp_path), "--api-key", "mk_test", "--secret-key", "msk_test", "--rate-limit", "0")
    writers = None
    for _ in range(KILLS + 1):
        with _program(*data) as (process, told):
            if writers is None:
                with _client(told) as http:
                    writers = Writers(http)
            asyncio.run(writers.write_until_it_dies(told["service"], process))
            assert process.wait(60) == -signal.SIGKILL
    assert all(writers.answered.values())
    with _program(*data) as (_, told), _client(told) as http:
        readings = _all(http, "/sensor-data?limit=1000&order=asc")
        assert writers.answered["readings"] <= {row["id"] for row in readings}
        sent = [tuple(row["sensor_data"].values()) for row in readings if row["device_id"] == writers.device_id]
        assert len(sent) == len(set(sent))
        assert writers.answered["products"] <= {row["product_id"] for row in _all(http, "/products?limit=1000")}
        listed = _all(http, f"/devices/{writers.device_id}/commands")
        assert writers.answered["commands"] <= {row["id"] for row in listed}
        records = _all(http, "/database/runtime-data?limit=1000")
        assert records
        for device_id in writers.watched:
            values = [row["sensor_data"] for row in readings if row["device_id"] == device_id]
            # Each start begins anew with every rule.
            lives = {one["life"] for one in values}
            fired = sum(_fired([one["hot"] for one in values if one["life"] == life]) for life in lives)
            assert sum(row["device_id"] == device_id for row in records) == fired
            commands = _all(http, f"/devices/{device_id}/commands?limit=1000")
            assert len(commands) == min(fired, OPEN_COMMANDS_MAX)


def _fired(values: list[int]) -> int:
    """How often a rule "above 60" fires on readings that come in this order."""
    return sum(1 for before, value in zip([0, *values], values, strict=False) if value > 60 >= before)


def test_a_seed_that_cannot_be_used_is_told_by_line_and_nothing_else(tmp_path):
    seed = tmp_path / "seed.yaml"
    seed.write_text("products:\n  - nam: x\ndevices: 3\n")
    ended = run_module("simulator.cli", "service", "--port", "0", "--seed", seed, code=2)
    lines = ended.stderr.splitlines()
    assert [line.split(" line ")[1][0] for line in lines] == ["2", "3"]
    assert all(line.startswith("error: seed ") for line in lines)
