"""nginx with a constant answer on a core of its own, and what the fleet's benchmarks need around it."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).with_name("peers")
LOCUST = "locust==2.47.0"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# One process and no log; it takes every connection that waits, or it would take one in each turn of its loop.
CONFIG = """
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


@dataclass(frozen=True, slots=True)
class Target:
    """A running nginx."""

    process: subprocess.Popen[bytes]
    url: str

    def cpu_s(self) -> float:
        """CPU time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cores() -> tuple[int, int]:
    """One core for the target and one for the generator; the same one twice where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def pinned(command: Sequence[str], core: int) -> list[str]:
    """The command on one core."""
    program = [sys.executable, "-c", "import os,sys;os.sched_setaffinity(0,{%d});os.execvp(sys.argv[1],sys.argv[1:])"]
    return [program[0], program[1], program[2] % core, *command]


@contextlib.contextmanager
def nginx(core: int, descriptors: int) -> Iterator[Target]:
    """An nginx on a free port, ended with the block."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        config = Path(folder) / "nginx.conf"
        settings = {"folder": folder, "port": port, "descriptors": descriptors, "connections": descriptors - 100}
        config.write_text(CONFIG.format(**settings))
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        process = subprocess.Popen(pinned([program, "-c", str(config), "-p", folder], core), stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield Target(process, f"http://127.0.0.1:{port}")
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(10)


def has_nginx() -> bool:
    """Whether it is installed."""
    return bool(shutil.which("nginx")) or Path("/usr/sbin/nginx").exists()


def find_locust() -> str | None:
    """Locust in an environment of its own, made on the first run; None where it cannot be had."""
    folder = PEERS / ".locust"
    program = folder / "bin" / "locust"
    if not program.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False, capture_output=True)
        if made.returncode == 0:
            install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", LOCUST]
            subprocess.run(install, check=False, capture_output=True)
    if not program.exists():
        print("Locust is not installed: it needs python3-venv and the package index once")
        return None
    return str(program)


def machine() -> str:
    """What it was measured on."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model or platform.machine()}, Linux {platform.release()}, {platform.python_version()}"


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("nginx did not start")
