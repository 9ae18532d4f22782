"""Figures A1 to A3: what an agent with five sensors costs, beside what using its five dependencies alone costs.

Method: the local service runs in a process of its own; the agent holds polls there over HTTP, reads five sensors every
10 s, and sends what they read every two minutes (``outbox.send_every_s: 120``).

=============  ==========================================================================================
memory         PSS out of ``/proc/PID/smaps_rollup``, the median of the idle time's samples; agent and peer
               idle side by side, so that they share pages alike
start          from starting the process to its READY (``sd_notify``), the median of the runs
idle CPU       user and system time out of ``/proc/PID/stat`` over the idle time
bytes written  ``write_bytes`` out of ``/proc/PID/io`` over the idle time, extrapolated to a day, once the store's
               log has its size; the state directory must be on a disk, since a RAM disk counts nothing. All
               modules are compiled before, as an installer does: else a module that an idle agent needs late
               would count as its own writing
network        bytes of both directions that a relay between agent and service counts, extrapolated to a day;
               headers of TCP and TLS are not in it
=============  ==========================================================================================

The peer imports httpx, paho-mqtt, pydantic, pyyaml and click and uses each once, since importing is complete only then:
one request to the service, one ``pydantic.BaseModel``. A device has the five dependencies and nothing else.
``--python`` takes the interpreter of such an installation; in a developer's environment httpx also imports rich and
pygments, and plug-ins are looked for in a hundred packages.

    python benchmarks/agent_footprint.py [--minutes 10] [--runs 5] [--dir FOLDER] [--python PYTHON]

Exit codes: 0 the bars are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import socket
import socketserver
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

from benchmarks.service import KEYS, make_device, service  # noqa: E402 - after the path

IMPORTS = "import httpx, paho.mqtt.client, pydantic, yaml, click"
USED = f"""{IMPORTS}
import sys
from pydantic import BaseModel
class M(BaseModel):
    x: int
client = httpx.Client(verify=False)
client.get(sys.argv[1] + "/.well-known/device-service")"""
# The whole packages, and all of the standard library that a program may ask for.
COMPILE = f"""{IMPORTS}
import agent, compileall, re, sqlite3, sys, sysconfig
others = re.compile("/(site-packages|test|tests|idlelib|lib2to3)/")
compileall.compile_dir(sysconfig.get_path("stdlib"), quiet=2, rx=others)
for name in {{each.partition(".")[0] for each in sys.modules}}:
    for folder in getattr(sys.modules.get(name), "__path__", ()):
        compileall.compile_dir(folder, quiet=2)"""
HOLD = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"
BAR_PSS_MB, BAR_START_RATIO, BAR_CPU_PERCENT, BAR_WRITTEN_MB, BAR_NETWORK_MB = 40.0, 2.0, 0.5, 25.0, 10.0
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0", "MALLOC_TRIM_THRESHOLD_": "0"}
"""As in the systemd unit; the peers get it as well."""
# A start counts as good after a minute, which is written down.
SETTLE_S = 75.0
LOG_BYTES = 1_040_000
SAMPLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What the agent costs.

    Attributes:
        pss_mb: proportional set size, MB (10^6 bytes).
        start_s: from its start to being ready.
        cpu_percent: of one core, while idle.
        written_mb_day: to the disk.
        network_mb_day: sent and received.
    """

    pss_mb: float
    start_s: float
    cpu_percent: float
    written_mb_day: float
    network_mb_day: float


class Relay(socketserver.ThreadingTCPServer):
    """Between agent and service: passes bytes on and counts them."""

    daemon_threads = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.upstream = upstream
        self.bytes = 0

    @property
    def url(self) -> str:
        """Where the agent finds the service."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Relayed(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with socket.create_connection(self.server.upstream) as upstream:
            back = threading.Thread(target=self._copy, args=(upstream, self.request))
            back.start()
            self._copy(self.request, upstream)
            back.join()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.server.bytes += len(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


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


@contextlib.contextmanager
def agent(python: str, config: Path) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A ready agent, and how long it took to be that, seconds."""
    address = config.parent / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        begun_s = time.perf_counter()
        arguments = ["-m", "agent.cli", "run", "--config", str(config)]
        with running(python, arguments, NOTIFY_SOCKET=str(address), **ALLOCATOR) as process:
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


def measure(python: str, config: Path, relay: Relay, runs: int, minutes: float) -> tuple[Cost, float, float]:
    """The agent, and the peer's memory in MB and start in seconds: some starts, then one long idle time together."""
    peer_s = median_start_s(lambda: peer(python, USED, relay.url), runs)
    agent_s = median_start_s(lambda: agent(python, config), runs)
    pause = threading.Event()
    fill_log(python, config, pause)
    with peer(python, USED, relay.url) as (other, _), agent(python, config) as (process, _):
        own = process.pid
        pause.wait(SETTLE_S)
        began_s, cpu_before_s, written, sent = time.perf_counter(), cpu_s(own), written_bytes(own), relay.bytes
        sizes: dict[int, list[float]] = {other.pid: [], own: []}
        while time.perf_counter() - began_s < minutes * 60:
            pause.wait(SAMPLE_S)
            for pid, samples in sizes.items():
                samples.append(pss_mb(pid))
        idle_s = time.perf_counter() - began_s
        days = idle_s / 86_400
        cost = Cost(
            pss_mb=statistics.median(sizes[own]),
            start_s=agent_s,
            cpu_percent=100 * (cpu_s(own) - cpu_before_s) / idle_s,
            written_mb_day=(written_bytes(own) - written) / 1e6 / days,
            network_mb_day=(relay.bytes - sent) / 1e6 / days,
        )
    return cost, statistics.median(sizes[other.pid]), peer_s


def fill_log(python: str, config: Path, pause: threading.Event) -> None:
    """Let the store's write-ahead log grow to the size at which it is used again, as it is after the first hours."""
    fast = config.with_name("fast.yaml")
    fast.write_text(
        config.read_text()
        .replace("interval_s: 10,", "interval_s: 0.1,")
        .replace("send_every_s: 120", "send_every_s: 0")
    )
    log = config.with_name("state") / "agent.db-wal"
    with agent(python, fast) as (process, _):
        while log.stat().st_size < LOG_BYTES:
            pause.wait(1.0)
        process.kill()  # an end in order would remove it


def write_config(folder: Path, base_url: str, device_id: str) -> Path:
    """The configuration of the agent, for this service: five sensors of one value each."""
    path, value = folder / "config.yaml", folder / "value"
    value.write_text("21.5\n")
    sensors = "".join(
        f"  - {{name: s{number}, type: file, interval_s: 10, settings: {{path: {value}, reading: value_{number}}}}}\n"
        for number in range(5)
    )
    path.write_text(
        f"""
service: {{base_url: "{base_url}", allow_plain_http: true}}
device: {{device_id: {device_id}}}
auth:
  allow_secret_key_on_device: true
  api_key_file: {folder}/x-api-key
  secret_key_file: {folder}/x-secret-key
state_dir: {folder}/state
outbox: {{send_every_s: 120}}
sensors:
{sensors}"""
    )
    return path


def judge(cost: Cost, peer_s: float) -> bool:
    """Each bar with what was measured."""
    bars = [
        ("A1 PSS", cost.pss_mb, BAR_PSS_MB, "MB"),
        ("A2 start to libraries", cost.start_s / peer_s, BAR_START_RATIO, "x"),
        ("A3 idle CPU", cost.cpu_percent, BAR_CPU_PERCENT, "%"),
        ("A3 written", cost.written_mb_day, BAR_WRITTEN_MB, "MB/day"),
        ("A3 network", cost.network_mb_day, BAR_NETWORK_MB, "MB/day"),
    ]
    for name, found, bar, unit in bars:
        print(f"{'ok  ' if found <= bar else 'MISS'} {name:<22}{found:>8.2f} {unit:<7} bar {bar:g}")
    return all(found <= bar for _, found, bar, _ in bars)


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="What an idle agent costs.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to watch the idle agent (default 10)")
    parser.add_argument("--runs", type=int, default=5, help="how often to start each (default 5)")
    parser.add_argument("--dir", type=Path, help="where to put the state; on a disk (default: a temporary folder)")
    parser.add_argument("--python", default=sys.executable, help="interpreter to measure with (default: this one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        for header, key in KEYS.items():
            (folder / header).write_text(key)
            (folder / header).chmod(0o600)
        with running(options.python, ["-c", COMPILE]) as compiler:
            compiler.wait()
        with service(folder / "service") as own, Relay(("127.0.0.1", own.port)) as relay:
            threading.Thread(target=relay.serve_forever, daemon=True).start()
            config = write_config(folder, relay.url, make_device(own.url))
            cost, peer_mb, peer_s = measure(options.python, config, relay, options.runs, options.minutes)
            relay.shutdown()
    day = dt.datetime.now(dt.UTC).date()
    print(f"agent footprint, {options.minutes:g} min idle, {options.runs} starts each; {day}")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"five libraries, used once: PSS {peer_mb:.1f} MB, start {peer_s:.3f} s; agent's start {cost.start_s:.3f} s")
    return 0 if judge(cost, peer_s) else 1


if __name__ == "__main__":
    sys.exit(main())
