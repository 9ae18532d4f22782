"""What several benchmarks need: facts of the machine and of processes, a program on one core, the service, an agent."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
PATIENCE_S = 300.0


# --- what is printed --------------------------------------------------------------------------------------------------


def machine() -> str:
    """When and on what it is measured."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} x {model or platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def judge(name: str, found: float, bar: float, unit: str = "", *, is_least: bool = False) -> bool:
    """Print what was found beside its bar, which is the most, or the least; whether it is kept."""
    is_kept = found >= bar if is_least else found <= bar
    sign = ">=" if is_least else "<="
    print(f"{'ok  ' if is_kept else 'MISS'} {name:<44}{found:>14,.2f} {unit:<9} bar {sign} {bar:,g}", flush=True)
    return is_kept


# --- processes --------------------------------------------------------------------------------------------------------


def cores() -> tuple[int, int]:
    """One core for the target and one for the generator; the same one twice where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def pinned(command: Sequence[str], core: int) -> list[str]:
    """The command on one core."""
    program = "import os,sys;os.sched_setaffinity(0,{%d});os.execvp(sys.argv[1],sys.argv[1:])"
    return [sys.executable, "-c", program % core, *command]


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int | str = "self") -> int:
    """Memory of a process, pages that are shared counted by their part."""
    return pss_of(Path(f"/proc/{pid}/smaps_rollup").read_text())


def pss_of(smaps_rollup: str) -> int:
    """The same out of the file's text."""
    return next(int(line.split()[1]) * 1024 for line in smaps_rollup.splitlines() if line.startswith("Pss:"))


def resident_bytes(pid: int | str = "self") -> int:
    """Memory of a process, all pages counted whole."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ended well: what it printed, how long it took, and the CPU time of it and of its target."""

    text: str
    seconds: float
    cpu_s: float
    target_cpu_s: float

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON value of each line that the program printed."""
        return [json.loads(line) for line in self.text.splitlines()]


def run(command: Sequence[object], *, core: int | None = None, target_pid: int | None = None) -> Done:
    """Run a program to its end; a name that begins with ``benchmarks.`` is a module of this folder.

    Raises:
        RuntimeError: it failed; the text has the end of what it said.
    """
    words = [*map(str, command)]
    words = [sys.executable, "-m", *words] if words[0].startswith("benchmarks.") else words
    words = words if core is None else pinned(words, core)
    began_s = time.monotonic()
    before, target_s = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_s(target_pid) if target_pid else 0.0
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Done(
        done.stdout, time.monotonic() - began_s, used_s, cpu_s(target_pid) - target_s if target_pid else math.nan
    )


@contextlib.contextmanager
def running(
    command: Sequence[str], environ: Mapping[str, str] | None = None, stdout: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A process for as long as the block; it can read its standard input until then."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        env={**os.environ, **(environ or {})},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def printing(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed ``ready``."""
    with running(command, environ, subprocess.PIPE) as process:
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{command[:3]} did not start")
        yield process


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# --- servers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that answers.

    Attributes:
        start_s: from its start to its first answer.
    """

    port: int
    pid: int
    start_s: float

    @property
    def url(self) -> str:
        """The server's base URL."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def server(command: Sequence[str], port: int, environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server for the length of the block; whatever it answers to the path of the service's health will do."""
    began_s = time.perf_counter()
    with running(command, environ) as process:
        while not _answers(f"http://127.0.0.1:{port}/_emulator/health"):
            if process.poll() is not None or time.perf_counter() - began_s > PATIENCE_S:
                raise RuntimeError(f"{command} did not start")
            time.sleep(0.005)
        yield Server(port, process.pid, time.perf_counter() - began_s)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def service(folder: Path) -> Iterator[Server]:
    """The local service, storing into a file, without a quota."""
    port = free_port()
    program = [sys.executable, "-m", "simulator.cli", "service", "--port", str(port), "--data", str(folder)]
    keys = {
        "FLEET_SIMULATOR_SERVICE_API_KEY": KEYS["x-api-key"],
        "FLEET_SIMULATOR_SERVICE_SECRET_KEY": KEYS["x-secret-key"],
    }
    with server([*program, "--rate-limit", "0"], port, keys) as own:
        yield own


def call(url: str, body: Mapping[str, object] | None = None) -> dict[str, str]:
    """One request with the keys."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**KEYS, "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def make_devices(base_url: str, count: int = 1) -> list[str]:
    """New devices of a new product; their ids."""
    owner = {"user_id": "u", "product_id": call(f"{base_url}/products", {"name": "benchmark"})["product_id"]}
    bodies = ({**owner, "device_identifier": f"benchmark-{number}"} for number in range(count))
    return [call(f"{base_url}/onboarding/device", body)["device_id"] for body in bodies]


def count_readings(folder: Path) -> int:
    """The rows in the file of the service that has or had this folder."""
    with contextlib.closing(sqlite3.connect(folder / "service.db")) as file:
        return int(file.execute("SELECT count(*) FROM readings").fetchone()[0])


def write_keys(folder: Path) -> dict[str, str]:
    """The key pair as files, and the settings that name them."""
    for name, key in KEYS.items():
        (folder / name).write_text(key)
        (folder / name).chmod(0o600)
    return {"api_key_file": str(folder / "x-api-key"), "secret_key_file": str(folder / "x-secret-key")}


@contextlib.contextmanager
def agent(
    config: Path, python: str = sys.executable, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """An agent that has told its READY (``sd_notify``), and how long that took, seconds."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"{folder}/notify"
        manager.bind(address)
        manager.settimeout(60)
        begun_s = time.perf_counter()
        command = [python, "-m", "agent.cli", "run", "--config", str(config)]
        with running(command, {"PYTHONPATH": str(ROOT), **(environ or {}), "NOTIFY_SOCKET": address}) as process:
            while b"READY=1" not in manager.recv(4096):
                pass
            yield process, time.perf_counter() - begun_s
