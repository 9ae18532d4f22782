"""nginx with a constant answer, wrk and Locust: the target and the peers of the fleet's benchmarks."""

from __future__ import annotations

import contextlib
import csv
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._rig import Done, Server, free_port, pinned, run, server
from simulator.fleet.engine.preflight import raise_descriptor_limit

LOCUST = "locust==2.47.0"
# One process and no log; it takes every connection that waits, or it would take one in each turn of its loop.
NGINX = """
daemon off; master_process off; worker_rlimit_nofile {descriptors}; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
    access_log off; server_tokens off; keepalive_requests 1000000000; keepalive_timeout 1h;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port} backlog=16384;
        location /devices/ {{
            default_type application/json; add_header etag '"v1"' always;
            if ($http_if_none_match) {{ return 304; }}
            return 200 '{{"data":[],"next_cursor":null,"has_more":false}}';
        }}
        location = /status {{ stub_status; }}
        location / {{ default_type application/json; return 200 '{{"id":"019b76da-a800-7000-8000-000000000006"}}'; }}
    }}
}}
"""
LOCUSTFILE = """
import itertools
from locust import FastHttpUser, task
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
class Device(FastHttpUser):
    numbers = itertools.count(1)
    def on_start(self):
        self.name = "019b76da-a800-7000-8000-%012x" % next(self.numbers)
        self.sequence = 0
    @task
    def send(self):
        if POLLS:
            self.client.get("/devices/%s/commands?status=open" % self.name, name="poll",
                            headers={**KEYS, "if-none-match": '"v1"'})
        self.sequence += 1
        number = self.sequence
        values = {"temperature_celsius": 18 + number % 800 * 0.01, "humidity_percent": 40 + number % 190 * 0.1}
        self.client.post("/sensor-data", json={"device_id": self.name, "sensor_data": {**values, "sequence": number}},
                         headers={**KEYS, "idempotency-key": "%s-%d" % (self.name, number)})
"""
"""Users that make a new body for each reading; before each of them, where ``POLLS`` is true, a poll."""
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Load:
    """One run of one generator.

    Attributes:
        per_s: requests in a second.
        cpu: of the generator, share of a core.
        target_cpu: of the target, share of a core.
        users: connections, or devices that lived at once.
        p50_ms, p99_ms: as the generator itself tells them.
        requests: that were answered.
    """

    per_s: float
    cpu: float = math.nan
    target_cpu: float = math.nan
    users: int = 0
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    requests: int = 0

    @property
    def per_cpu_s(self) -> float:
        """Requests in a second of the generator's CPU time."""
        return self.per_s / max(self.cpu, 1e-9)


def show(results: Mapping[str, Sequence[Load]]) -> dict[str, float]:
    """Print a row for each generator; the median rates."""
    heads = {"users": 8, "median": 10, "lowest": 10, "highest": 10, "p50 ms": 9, "p99 ms": 9, "CPU": 6, "per CPU s": 11}
    print(f"{'requests per s':<28}" + "".join(f"{name:>{width}}" for name, width in heads.items()) + "  target")
    for name, loads in results.items():
        rates = [load.per_s for load in loads]
        p50, p99, cpu, cost, target = (
            statistics.median(getattr(load, member) for load in loads)
            for member in ("p50_ms", "p99_ms", "cpu", "per_cpu_s", "target_cpu")
        )
        print(
            f"{name:<28}{loads[0].users:>8,}{statistics.median(rates):>10,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}"
            f"{p50:>9.1f}{p99:>9.1f}{cpu:>6.0%}{cost:>11,.0f}{target:>8.0%}"
        )
    return {name: statistics.median(load.per_s for load in loads) for name, loads in results.items()}


# --- nginx ------------------------------------------------------------------------------------------------------------


def find_nginx() -> str | None:
    """Path of nginx, also in ``/usr/sbin``; None, after a line that says what to install, where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        print("nginx is missing: apt-get install nginx-light", file=sys.stderr)
    return found


@contextlib.contextmanager
def nginx(core: int) -> Iterator[Server]:
    """An nginx on a free port and one core, ended with the block."""
    descriptors, port = raise_descriptor_limit(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        settings = {"folder": folder, "port": port, "descriptors": descriptors, "connections": descriptors - 100}
        config.write_text(NGINX.format(**settings))
        with server(pinned([find_nginx() or "nginx", "-c", str(config), "-p", folder], core), port) as own:
            yield own


# --- wrk --------------------------------------------------------------------------------------------------------------


def has_wrk() -> bool:
    """Whether it is installed; says what to install where it is not."""
    if shutil.which("wrk") is None:
        print("wrk is missing: apt-get install wrk", file=sys.stderr)
        return False
    return True


def constant(headers: Mapping[str, str], body: str | None) -> str:
    """A script for wrk that sends the same request again and again: POST with a body, GET without."""
    lines = [f"wrk.headers[{name!r}]={value!r}" for name, value in headers.items()]
    if body is not None:
        lines += ["wrk.method='POST'", f"wrk.body={body!r}", "wrk.headers['content-type']='application/json'"]
    return "\n".join(lines)


def run_wrk(
    url: str, script: str, *, connections: int = 64, seconds: float, start: Callable[[list[str]], Done] = run
) -> Load:
    """As many users as connections; each sends again when it has its answer.

    Args:
        url: of the one address.
        script: in Lua; makes the requests.
        connections: kept open.
        seconds: of load.
        start: runs the command.

    Raises:
        RuntimeError: a request failed.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        settings = ["-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}s", "--latency", "--timeout", "30s"]
        done = start(["wrk", *settings, "-s", file.name, url])
    if wrong := re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", done.text):
        raise RuntimeError(f"wrk: {wrong[0]}")
    requests, rate = re.search(r"(\d+) requests in", done.text), re.search(r"Requests/sec:\s*([\d.]+)", done.text)
    assert requests is not None
    assert rate is not None
    shares = re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", done.text)
    p50_ms, p99_ms = (float(number) * _MILLISECONDS[unit] for _, number, unit in shares)
    cpu, target_cpu = done.cpu_s / seconds, done.target_cpu_s / seconds
    return Load(float(rate[1]), cpu, target_cpu, connections, p50_ms, p99_ms, int(requests[1]))


# --- Locust -----------------------------------------------------------------------------------------------------------


def find_locust() -> str | None:
    """Locust in an environment of its own, made on the first run; None where it cannot be had."""
    folder = Path(__file__).with_name("peers") / ".locust"
    program = folder / "bin" / "locust"
    if not program.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False, capture_output=True)
        if made.returncode == 0:
            install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", LOCUST]
            subprocess.run(install, check=False, capture_output=True)
    if not program.exists():
        print("Locust is not installed: it needs python3-venv and the package index once", file=sys.stderr)
        return None
    return str(program)


@contextlib.contextmanager
def locust(locustfile: str, url: str, users: int) -> Iterator[list[str]]:
    """The command of a run against an address, for ``-t`` and ``--csv`` to be added."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "locustfile.py"
        file.write_text(locustfile)
        users_words = ["-u", str(users), "-r", str(users), "--only-summary"]
        yield [find_locust() or "locust", "-f", str(file), "--headless", *users_words, "--host", url]


def run_locust(locustfile: str, target: Server, users: int, seconds: float, core: int) -> Load:
    """One process on one core, counted from when all users are there.

    Raises:
        RuntimeError: a request failed, or none was made in time.
    """
    with locust(locustfile, target.url, users) as command, tempfile.TemporaryDirectory() as folder:
        more = ["--reset-stats", "-t", f"{round(seconds) + 2}s", "--csv", f"{folder}/run"]
        done = run([*command, *more], core=core, target_pid=target.pid)
        with Path(folder, "run_stats.csv").open() as table:
            total = next(row for row in csv.DictReader(table) if row["Name"] == "Aggregated")
    if int(total["Failure Count"]) or float(total["Requests/s"]) <= 0:
        raise RuntimeError(f"Locust: {total}; does it need more --seconds?")
    cpu, target_cpu = done.cpu_s / (seconds + 2), done.target_cpu_s / (seconds + 2)
    return Load(float(total["Requests/s"]), cpu, target_cpu, users, float(total["50%"]), float(total["99%"]))
