"""Figures A1 to A3: what an agent with five sensors costs, beside what using its five dependencies alone costs.

Method: the local service runs in a process of its own; the agent holds polls there over HTTP, reads five sensors every
10 s, and sends what they read every two minutes (``outbox.send_every_s: 120``).

=============  ==========================================================================================
memory         PSS out of ``/proc/PID/smaps_rollup``, the median of the idle time's samples; agent and peer
               idle side by side, so that they share pages alike
start          from starting the process to its READY (``sd_notify``), the median of the runs
idle CPU       user and system time out of ``/proc/PID/stat`` over the idle time
bytes written  ``write_bytes`` out of ``/proc/PID/io`` over the idle time, extrapolated to a day, once the store's
               log has its size; the state directory must be on a disk, since a RAM disk counts nothing. The
               idle agent writes no compiled modules: one that it needs late would count as its own writing
network        bytes of both directions that a relay between agent and service counts, extrapolated to a day;
               headers of TCP and TLS are not in it
=============  ==========================================================================================

The peer imports httpx, paho-mqtt, pydantic, pyyaml and click and uses each once, since importing is complete only then:
one request to the service, one ``pydantic.BaseModel``. A device has the five dependencies and nothing else.
``--python`` takes the interpreter of such an installation; in a developer's environment httpx also imports rich and
pygments, and plug-ins are looked for in a hundred packages.

    python -m benchmarks.agent_footprint [--minutes 10] [--runs 5] [--dir FOLDER] [--python PYTHON]

Exit codes: 0 the bars are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import socketserver
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

from benchmarks._rig import agent, cpu_s, judge, machine, make_devices, printing, pss_bytes, service, write_keys

USED = """import httpx, paho.mqtt.client, pydantic, yaml, click
import sys
from pydantic import BaseModel
class M(BaseModel):
    x: int
client = httpx.Client(verify=False)
client.get(sys.argv[1] + "/.well-known/device-service")"""
HOLD = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()"
BAR_PSS_MB, BAR_START_RATIO, BAR_CPU_PERCENT, BAR_WRITTEN_MB, BAR_NETWORK_MB = 40.0, 2.0, 0.5, 25.0, 10.0
ENVIRON = {"MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0", "MALLOC_TRIM_THRESHOLD_": "0"}
"""As in the systemd unit; the peer gets it as well."""
NO_CACHE = {**ENVIRON, "PYTHONDONTWRITEBYTECODE": "1"}
# A start counts as good after a minute, which is written down.
SETTLE_S = 75.0
LOG_BYTES = 1_040_000
SAMPLE_S = 5.0


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


def written_bytes(pid: int) -> int:
    """What the process had written to disks so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


@contextlib.contextmanager
def peer(python: str, url: str) -> Iterator[tuple[Popen[str], float]]:
    """A process that has used the libraries, and how long it took to be that, seconds."""
    begun_s = time.perf_counter()
    with printing([python, "-c", USED + HOLD, url], ENVIRON) as process:
        yield process, time.perf_counter() - begun_s


def measure(python: str, config: Path, relay: Relay, runs: int, minutes: float) -> bool:
    """Some starts of agent and peer, then one long idle time together; each bar with what was measured."""
    starts: dict[str, list[float]] = {"peer": [], "agent": []}
    for _ in range(1 + runs):
        with peer(python, relay.url) as (_, start_s):
            starts["peer"].append(start_s)
        with agent(config, python, ENVIRON) as (_, start_s):
            starts["agent"].append(start_s)
    # The first one, which fills the disk's cache, is not counted.
    peer_s, agent_s = (statistics.median(times[1:]) for times in starts.values())
    fill_log(python, config)
    with peer(python, relay.url) as (other, _), agent(config, python, NO_CACHE) as (process, _):
        own = process.pid
        time.sleep(SETTLE_S)
        began_s, cpu_before_s, written, sent = time.perf_counter(), cpu_s(own), written_bytes(own), relay.bytes
        sizes: dict[int, list[float]] = {other.pid: [], own: []}
        while time.perf_counter() - began_s < minutes * 60:
            time.sleep(SAMPLE_S)
            for pid, samples in sizes.items():
                samples.append(pss_bytes(pid) / 1e6)
        idle_s = time.perf_counter() - began_s
        cpu_percent = 100 * (cpu_s(own) - cpu_before_s) / idle_s
        written_mb, sent_mb = (written_bytes(own) - written) / 1e6, (relay.bytes - sent) / 1e6
    peer_mb, own_mb = (statistics.median(samples) for samples in sizes.values())
    print(f"five libraries, used once: PSS {peer_mb:.1f} MB, start {peer_s:.3f} s; agent's start {agent_s:.3f} s")
    days = idle_s / 86_400
    kept = [
        judge("A1 PSS", own_mb, BAR_PSS_MB, "MB"),
        judge("A2 start to libraries", agent_s / peer_s, BAR_START_RATIO, "x"),
        judge("A3 idle CPU", cpu_percent, BAR_CPU_PERCENT, "%"),
        judge("A3 written", written_mb / days, BAR_WRITTEN_MB, "MB/day"),
        judge("A3 network", sent_mb / days, BAR_NETWORK_MB, "MB/day"),
    ]
    return all(kept)


def fill_log(python: str, config: Path) -> None:
    """Let the store's write-ahead log grow to the size at which it is used again, as it is after the first hours."""
    fast = config.with_name("fast.yaml")
    fast.write_text(
        config.read_text()
        .replace("interval_s: 10,", "interval_s: 0.1,")
        .replace("send_every_s: 120", "send_every_s: 0")
    )
    log = config.with_name("state") / "agent.db-wal"
    with agent(fast, python, ENVIRON) as (process, _):
        while log.stat().st_size < LOG_BYTES:
            time.sleep(1.0)
        process.kill()  # an end in order would remove it


def write_config(folder: Path, base_url: str, device_id: str) -> Path:
    """The configuration of the agent, for this service: five sensors of one value each."""
    path, value, keys = folder / "config.yaml", folder / "value", write_keys(folder)
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
  api_key_file: {keys["api_key_file"]}
  secret_key_file: {keys["secret_key_file"]}
state_dir: {folder}/state
outbox: {{send_every_s: 120}}
sensors:
{sensors}"""
    )
    return path


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="What an idle agent costs.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to watch the idle agent (default 10)")
    parser.add_argument("--runs", type=int, default=5, help="how often to start each (default 5)")
    parser.add_argument("--dir", type=Path, help="where to put the state; on a disk (default: a temporary folder)")
    parser.add_argument("--python", default=sys.executable, help="interpreter to measure with (default: this one)")
    options = parser.parse_args()
    print(f"A1 to A3: {options.minutes:g} min idle, {options.runs} starts each\n{machine()}\n")
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        with service(folder / "service") as own, Relay(("127.0.0.1", own.port)) as relay:
            threading.Thread(target=relay.serve_forever, daemon=True).start()
            [device_id] = make_devices(own.url)
            config = write_config(folder, relay.url, device_id)
            is_kept = measure(options.python, config, relay, options.runs, options.minutes)
            relay.shutdown()
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
