"""Memory and start of the agent beside other vendors' device software, all of them idle on one broker.

Method: one mosquitto with TLS on this machine. Each program is started, connects, and then does nothing but keep its
connection; the agent also keeps its journal and reads one sensor a minute. Nobody but the broker says when a program is
connected, so all are judged alike.

=============  ==========================================================================================
start          from starting the process to mosquitto's log line about its CONNECT, the median of the runs
memory         PSS out of ``/proc/PID/smaps_rollup``, all programs side by side, the median of the idle time
idle CPU       user and system time out of ``/proc/PID/stat`` over the idle time
=============  ==========================================================================================

==========================  =========================================================================================
``device-agent``            over MQTT 5, with the systemd unit's allocator setting
``awsiotsdk``               ``awscrt.mqtt5`` with a client that connects: a library, no agent around it
``azure-iot-device``        ``IoTHubDeviceClient.connect()``: a library, no agent around it. Its port is always 8883
``thingsboard-gateway``     the program with an empty list of connectors
==========================  =========================================================================================

The peers are no dependencies of this project: each needs a virtual environment called like it below one folder, such as
``python3 -m venv PEERS/awsiotsdk && PEERS/awsiotsdk/bin/pip install awsiotsdk``. One that is missing is left out and
named. ``--python`` takes the interpreter of an installation of the agent's five dependencies alone.

    python benchmarks/agent_peers.py [--peers PEERS] [--minutes 2] [--runs 3] [--python PYTHON]

Exit codes: 0 measured, 2 there is no mosquitto.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.agent_footprint import ALLOCATOR, SAMPLE_S, SETTLE_S, Cost, cpu_s, pss_mb  # noqa: E402
from tests.certificates import Authority  # noqa: E402
from tests.mosquitto import Mosquitto, find_mosquitto, mosquitto  # noqa: E402

AZURE_PORT = 8883
CONNECTED_WITHIN_S = 60.0

AWS = """
import sys, threading
from awscrt import io, mqtt5
tls = io.TlsContextOptions()
tls.override_default_trust_store_from_path(None, sys.argv[2])
client = mqtt5.Client(mqtt5.ClientOptions(
    host_name="localhost", port=int(sys.argv[1]), tls_ctx=io.ClientTlsContext(tls),
    connect_options=mqtt5.ConnectPacket(client_id="awsiotsdk")))
client.start()
threading.Event().wait()
"""
AZURE = """
import sys, threading
from azure.iot.device import IoTHubDeviceClient
client = IoTHubDeviceClient.create_from_connection_string(
    "HostName=localhost;DeviceId=azure-iot-device;SharedAccessKey=c2VjcmV0",
    server_verification_cert=open(sys.argv[2]).read())
client.connect()
threading.Event().wait()
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Something that connects to the broker.

    Attributes:
        name: of the package.
        command: what to start.
        environ: beside this process's own.
        client_id: how the broker's log calls it, or how that begins; empty for its name.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    client_id: str = ""


@contextlib.contextmanager
def connected(program: Program, broker: Mosquitto, folder: Path) -> Iterator[tuple[int, float]]:
    """The program's process id, and how long it took until the broker had its CONNECT, seconds."""
    before = len(broker.log())
    begun_s = time.perf_counter()
    with (folder / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen(
            program.command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **program.environ}
        )
    try:
        pause = threading.Event()
        while f" as {program.client_id or program.name}" not in broker.log()[before:]:
            if process.poll() is not None or time.perf_counter() - begun_s > CONNECTED_WITHIN_S:
                tail = (folder / f"{program.name}.log").read_text(errors="replace")[-2000:] + broker.log()[before:]
                raise RuntimeError(f"{program.name} did not connect:\n{tail}")
            pause.wait(0.005)
        yield process.pid, time.perf_counter() - begun_s
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def agent(python: str, folder: Path, broker: Mosquitto, authority: Path) -> Program:
    """The agent, over MQTT alone."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text("device-token")
    config = folder / "agent.yaml"
    config.write_text(
        f"mqtt: {{host: localhost, port: {broker.port}, tls: true, ca_file: {authority}}}\n"
        f"device: {{device_id: device-agent}}\nauth: {{mode: bearer, token_file: {token}}}\n"
        f"state_dir: {folder / 'state'}\ncommands: {{poll: {{spread_s: 0}}}}\n"
        "sensors: [{name: board, type: system, interval_s: 60}]\n"
    )
    (folder / "state").mkdir()
    command = (python, "-m", "agent.cli", "run", "--config", str(config))
    return Program("device-agent", command, {**ALLOCATOR, "PYTHONPATH": str(ROOT)})


def thingsboard(python: Path, folder: Path, broker: Mosquitto, authority: Path) -> Program:
    """The gateway with its own default configuration, without connectors and without remote control."""
    config = folder / "thingsboard"
    config.mkdir()
    settings = {
        "thingsboard": {
            "host": "localhost",
            "port": broker.port,
            "remoteShell": False,
            "remoteConfiguration": False,
            "statistics": {"enable": False},
            "deviceFiltering": {"enable": False},
            "security": {
                "type": "tlsAccessToken",
                "accessToken": "token",
                "caCert": str(authority),
            },
            "qos": 1,
        },
        "storage": {"type": "memory", "read_records_count": 100, "max_records_count": 100_000},
        "grpc": {"enabled": False},
        "connectors": [],
    }
    (config / "tb_gateway.json").write_text(json.dumps(settings))
    (config / "logs.json").write_text(json.dumps({"version": 1, "disable_existing_loggers": False}))
    code = "from thingsboard_gateway.tb_gateway import daemon; daemon()"
    return Program("thingsboard-gateway", (str(python), "-c", code), {"TB_GW_CONFIG_DIR": str(config)}, "auto-")


def programs(options: argparse.Namespace, folder: Path, broker: Mosquitto, authority: Path) -> list[Program]:
    """The agent and whichever peers are installed."""
    found = [agent(options.python, folder, broker, authority)]
    for name in ("awsiotsdk", "azure-iot-device", "thingsboard-gateway"):
        python = options.peers / name / "bin" / "python"
        if not python.exists():
            print(f"left out: {name} (no {python})")
        elif name == "thingsboard-gateway":
            found.append(thingsboard(python, folder, broker, authority))
        else:
            code = AWS if name == "awsiotsdk" else AZURE
            found.append(Program(name, (str(python), "-c", code, str(broker.port), str(authority))))
    return found


def measure(wanted: Sequence[Program], broker: Mosquitto, folder: Path, runs: int, minutes: float) -> list[Cost]:
    """Some starts of each, the first one uncounted, then one idle time of all together."""
    starts: dict[str, list[float]] = {program.name: [] for program in wanted}
    for turn in range(1 + runs):
        for program in wanted:
            with connected(program, broker, folder) as (_, start_s):
                if turn:
                    starts[program.name].append(start_s)
    with contextlib.ExitStack() as stack:
        pids = {program.name: stack.enter_context(connected(program, broker, folder))[0] for program in wanted}
        pause = threading.Event()
        pause.wait(SETTLE_S)
        begun_s = time.perf_counter()
        cpu_before = {name: cpu_s(pid) for name, pid in pids.items()}
        sizes: dict[str, list[float]] = {name: [] for name in pids}
        while time.perf_counter() - begun_s < minutes * 60:
            pause.wait(SAMPLE_S)
            for name, pid in pids.items():
                sizes[name].append(pss_mb(pid))
        idle_s = time.perf_counter() - begun_s
        busy = {name: 100 * (cpu_s(pid) - cpu_before[name]) / idle_s for name, pid in pids.items()}
    return [Cost(name, statistics.median(sizes[name]), statistics.median(starts[name]), busy[name]) for name in starts]


def version_of(program: Program) -> str:
    """What is installed, as its own interpreter tells."""
    package = "device-agent" if program.name == "device-agent" else program.name
    code = f"from importlib.metadata import version; print(version({package!r}))"
    run = subprocess.run([program.command[0], "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() or "from this folder"


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="The agent beside other vendors' device software.")
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="folder of the peers' environments (peers/)")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to watch them idle (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="how often to start each (default 3)")
    parser.add_argument("--python", default=sys.executable, help="the agent's interpreter (default: this one)")
    options = parser.parse_args()
    options.peers = options.peers.absolute()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    program = find_mosquitto()
    if program is None:
        print("mosquitto is not installed: apt-get install mosquitto")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        authority = Authority(folder / "certificates")
        pair = authority.issue("localhost")
        tls = (f"cafile {authority.certificate}", f"certfile {pair.certificate}", f"keyfile {pair.key}", "log_type all")
        with mosquitto(program, folder / "broker", tls, port=AZURE_PORT) as broker:
            wanted = programs(options, folder, broker, authority.certificate)
            versions = {each.name: version_of(each) for each in wanted}
            costs = measure(wanted, broker, folder, options.runs, options.minutes)
    day = dt.datetime.now(dt.UTC).date()
    print(f"agent and peers, {options.minutes:g} min idle over MQTT and TLS, {options.runs} starts each; {day}")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"\n{'':<22}{'version':>18}{'PSS MB':>9}{'start s':>9}{'CPU %':>8}")
    for cost in costs:
        print(
            f"{cost.name:<22}{versions[cost.name]:>18}{cost.pss_mb:>9.1f}{cost.start_s:>9.3f}{cost.cpu_percent:>8.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
