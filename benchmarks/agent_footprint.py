"""Figures A1 to A3: what an idle agent costs, beside what importing its five dependencies alone costs.

Method: the local service runs in a process of its own; the agent polls it over HTTP (held polls) and sends one reading
of the sensor ``system`` a minute.

=============  ==========================================================================================
memory         PSS out of ``/proc/PID/smaps_rollup``, the median of the idle time's samples; agent and peers
               idle side by side, so that they share pages alike
start          from starting the process to its READY (``sd_notify``), the median of the runs
idle CPU       user and system time out of ``/proc/PID/stat`` over the idle time
bytes written  ``write_bytes`` out of ``/proc/PID/io`` over the idle time, extrapolated to a day; the state
               directory must be on a disk, since a RAM disk counts nothing. All modules are compiled before, as an
               installer does: else a module that an idle agent needs late would count as its own writing
=============  ==========================================================================================

The peer imports the libraries that the agent stands on, measured the same way in the same run, in three steps. The
bars are ratios to the second, the five dependencies each used once, since importing is complete only then. The third
is shown for comparison: the journal's ``sqlite3`` is no dependency, but what it costs is no code of the agent's either.

=======================  ============================================================================================
five, imported           ``import httpx, paho.mqtt.client, pydantic, yaml, click`` and nothing more
five, used once          with what httpx and pydantic put off until their first use: one request to the service, one
                         ``pydantic.BaseModel`` (half of both libraries is loaded only then)
with sqlite3             and the standard library's ``sqlite3``, used once: one row in one file
=======================  ============================================================================================

A device has the five dependencies and nothing else. ``--python`` takes the interpreter of such an installation; in a
developer's environment httpx also imports rich and pygments, and plug-ins are looked for in a hundred packages.

    python benchmarks/agent_footprint.py [--minutes 2] [--runs 5] [--dir FOLDER] [--python PYTHON]

Exit codes: 0 the bars are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

IMPORTS = "import httpx, paho.mqtt.client, pydantic, yaml, click"
USED = f"""{IMPORTS}
import sys
from pydantic import BaseModel
class M(BaseModel):
    x: int
client = httpx.Client(verify=False)
client.get(sys.argv[1] + "/.well-known/device-service")"""
STORED = f"""{USED}
import sqlite3
rows = sqlite3.connect(sys.argv[2], isolation_level=None)
rows.execute("PRAGMA journal_mode=WAL")
rows.execute("CREATE TABLE IF NOT EXISTS reading (recorded_at REAL)")
rows.execute("INSERT INTO reading VALUES (1)")"""
# The whole packages, and all of the standard library that a program may ask for.
COMPILE = f"""{IMPORTS}
import agent, compileall, re, sqlite3, sys, sysconfig
others = re.compile("/(site-packages|test|tests|idlelib|lib2to3)/")
compileall.compile_dir(sysconfig.get_path("stdlib"), quiet=2, rx=others)
for name in {{each.partition(".")[0] for each in sys.modules}}:
    for folder in getattr(sys.modules.get(name), "__path__", ()):
        compileall.compile_dir(folder, quiet=2)"""
HOLD = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"
BAR_PSS_MB, BAR_PSS_RATIO, BAR_START_RATIO, BAR_CPU_PERCENT, BAR_WRITTEN_MB = 40.0, 1.3, 2.0, 0.5, 25.0
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0", "MALLOC_TRIM_THRESHOLD_": "0"}
"""As in the systemd unit; the peers get it as well."""
SETTLE_S = 5.0
SAMPLE_S = 5.0

# The service is started by its library in a process of its own, and says where it is and which device may poll it.
SERVICE = """
import sys
from pathlib import Path
from agent.wire.auth import KeyPair
from agent.wire.models import RegisterDevice
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
with RunningService(ServiceConfig(rate_limit=0, log_level="warning")) as service:
    with ServiceClient(service.base_url, KeyPair(service.api_key, service.secret_key)) as client:
        product = client.create_product(NewProduct(name="footprint"))
        device = client.register_device(RegisterDevice(
            user_id="u", product_id=product.product_id, device_name="d", device_identifier="SN-1", qr_info={}))
    folder = Path(sys.argv[1])
    for name, key in (("api_key", service.api_key), ("secret_key", service.secret_key.reveal())):
        (folder / name).write_text(key)
        (folder / name).chmod(0o600)
    print(service.base_url, device.device_id, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kind of process costs.

    Attributes:
        pss_mb: proportional set size, MB (10^6 bytes).
        start_s: from its start to being ready.
        cpu_percent: of one core, while idle; None when it was not measured.
        written_mb_day: to the disk; None when it was not measured.
    """

    name: str
    pss_mb: float
    start_s: float
    cpu_percent: float | None = None
    written_mb_day: float | None = None


def pss_mb(pid: int) -> float:
    """The process's share of the memory, MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("this kernel has no smaps_rollup")


def cpu_s(pid: int) -> float:
    """User and system time so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written_bytes(pid: int) -> int:
    """What the process had written to disks so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


@contextlib.contextmanager
def running(python: str, arguments: list[str], **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A process for as long as the block."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [python, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": str(ROOT), **environ},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def peer(python: str, code: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A process that has imported, with the agent's allocator setting, and how long it took, seconds."""
    begun_s = time.perf_counter()
    with running(python, ["-c", code + HOLD, *arguments], **ALLOCATOR) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process, time.perf_counter() - begun_s


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is measured: the interpreter, the service, a folder on a disk, the agent's configuration."""

    python: str
    base_url: str
    folder: Path
    config: Path


@contextlib.contextmanager
def agent(place: Place) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A ready agent, and how long it took to be that, seconds."""
    address = place.folder / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        begun_s = time.perf_counter()
        arguments = ["-m", "agent.cli", "run", "--config", str(place.config)]
        with running(place.python, arguments, NOTIFY_SOCKET=str(address), **ALLOCATOR) as process:
            while b"READY=1" not in manager.recv(4096):
                pass
            yield process, time.perf_counter() - begun_s


def median_start_s(start: Callable[[], AbstractContextManager[tuple[object, float]]], runs: int) -> float:
    """Some starts; the first one, which fills the disk's cache, is not counted."""
    times = []
    for _ in range(1 + runs):
        with start() as (_, start_s):
            times.append(start_s)
    return statistics.median(times[1:])


def measure(place: Place, runs: int, minutes: float) -> tuple[Cost, ...]:
    """The imports in three steps, and the agent: some starts of each, then one long idle time together.

    Side by side, since PSS shares the pages of a library among the processes that have it open: measured one after the
    other, each would be charged for what else happens to run.
    """
    python, arguments = place.python, (place.base_url, str(place.folder / "one_row.db"))
    codes = (IMPORTS, USED, STORED)
    peers_s = [median_start_s(lambda code=code: peer(python, code, *arguments), runs) for code in codes]  # type: ignore[misc]  # mypy sees no default in a lambda
    agent_s = median_start_s(lambda: agent(place), runs)
    pause = threading.Event()
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(peer(python, code, *arguments))[0].pid for code in codes]
        own = stack.enter_context(agent(place))[0].pid
        pause.wait(SETTLE_S)
        begun_s, cpu_before_s, bytes_before = time.perf_counter(), cpu_s(own), written_bytes(own)
        sizes: dict[int, list[float]] = {pid: [] for pid in (*pids, own)}
        while time.perf_counter() - begun_s < minutes * 60:
            pause.wait(SAMPLE_S)
            for pid, samples in sizes.items():
                samples.append(pss_mb(pid))
        idle_s = time.perf_counter() - begun_s
        cpu_percent = 100 * (cpu_s(own) - cpu_before_s) / idle_s
        written_mb_day = (written_bytes(own) - bytes_before) / 1e6 * 86_400 / idle_s
    *peers_mb, agent_mb = (statistics.median(samples) for samples in sizes.values())
    names = ("five libraries, imported", "  five, used once", "  and sqlite3, used once")
    return (
        *(Cost(name, mb, start_s) for name, mb, start_s in zip(names, peers_mb, peers_s, strict=True)),
        Cost("agent, idle over HTTP", agent_mb, agent_s, cpu_percent, written_mb_day),
    )


def write_config(folder: Path, base_url: str, device_id: str) -> Path:
    """The configuration of the agent, for this service."""
    path = folder / "config.yaml"
    path.write_text(
        f"""
service: {{base_url: "{base_url}"}}
device: {{device_id: {device_id}}}
auth:
  allow_secret_key_on_device: true
  api_key_file: {folder}/api_key
  secret_key_file: {folder}/secret_key
sensors: [{{name: board, type: system, interval_s: 60}}]
state_dir: {folder}/state
"""
    )
    return path


def print_table(costs: list[Cost], plain: Cost) -> None:
    """Everything side by side."""
    print(f"\n{'':<34}{'PSS MB':>8}{'ratio':>7}{'start s':>9}{'ratio':>7}{'CPU %':>8}{'MB/day':>8}")
    for cost in costs:
        cpu = "" if cost.cpu_percent is None else f"{cost.cpu_percent:.2f}"
        written = "" if cost.written_mb_day is None else f"{cost.written_mb_day:.1f}"
        pss, start = cost.pss_mb / plain.pss_mb, cost.start_s / plain.start_s
        print(f"{cost.name:<34}{cost.pss_mb:>8.1f}{pss:>7.2f}{cost.start_s:>9.3f}{start:>7.2f}{cpu:>8}{written:>8}")


def judge(imports: Cost, measured: Cost) -> bool:
    """Each bar with what was measured."""
    written, cpu = measured.written_mb_day or 0.0, measured.cpu_percent or 0.0
    bars = [
        ("A1 PSS", measured.pss_mb, BAR_PSS_MB, "MB"),
        ("A1 PSS to imports", measured.pss_mb / imports.pss_mb, BAR_PSS_RATIO, "x"),
        ("A2 start to imports", measured.start_s / imports.start_s, BAR_START_RATIO, "x"),
        ("A3 idle CPU", cpu, BAR_CPU_PERCENT, "%"),
        ("A3 written", written, BAR_WRITTEN_MB, "MB/day"),
    ]
    print()
    for name, found, bar, unit in bars:
        print(f"{'ok  ' if found <= bar else 'MISS'} {name:<22}{found:>8.2f} {unit:<7} bar {bar:g}")
    return all(found <= bar for _, found, bar, _ in bars)


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="What an idle agent costs.")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to watch the idle agent (default 2)")
    parser.add_argument("--runs", type=int, default=5, help="how often to start each (default 5)")
    parser.add_argument("--dir", type=Path, help="where to put the state; on a disk (default: a temporary folder)")
    parser.add_argument("--python", default=sys.executable, help="interpreter to measure with (default: this one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        with running(sys.executable, ["-c", SERVICE, str(folder)]) as service:
            assert service.stdout is not None
            base_url, device_id = service.stdout.readline().split()
            place = Place(options.python, base_url, folder, write_config(folder, base_url, device_id))
            with running(options.python, ["-c", COMPILE]) as compiler:
                compiler.wait()
            plain, used, stored, measured = measure(place, options.runs, options.minutes)
    day = dt.datetime.now(dt.UTC).date()
    print(f"agent footprint, {options.minutes:g} min idle, {options.runs} starts each; {day}")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print_table([plain, used, stored, measured], plain)
    return 0 if judge(used, measured) else 1


if __name__ == "__main__":
    sys.exit(main())
