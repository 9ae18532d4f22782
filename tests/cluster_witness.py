"""nginx between the devices and the service: its log says who sent what when, whatever the run says of itself."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME
from tests.conftest import require_program

CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 4000; }}
http {{
    log_format seen escape=json
        '{{"at": $msec, "took": $request_time, "from": "$remote_addr", "connection": $connection, '
        '"request": "$request_method $request_uri", "status": "$status", "api_key": "$http_x_api_key", '
        '"body": "$request_body"}}';
    access_log {folder}/seen seen;
    keepalive_requests 1000000; keepalive_timeout 1h; client_body_buffer_size 64k;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    upstream service {{ server {service}; keepalive 64; }}
    server {{
        {listens}
        location / {{
            proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Host $http_host; proxy_read_timeout 90s; proxy_next_upstream off;
        }}
    }}
}}
"""
READINGS = "POST /sensor-data"


@dataclass(frozen=True, slots=True)
class Seen:
    """A reading that a device sent.

    Attributes:
        at_s: when the request had come, seconds since the epoch.
        machine: the address that it came from.
        device: its id.
        number: of the reading.
        accepted: the service took it.
        api_key: that came with it.
    """

    at_s: float
    machine: str
    device: str
    number: int
    accepted: bool
    api_key: str


class Witness:
    """What nginx wrote down.

    Args:
        port: that it listens on.
        file: its log.
    """

    def __init__(self, port: int, file: Path) -> None:
        self.port = port
        self._file = file

    def readings(self) -> list[Seen]:
        """All that were sent, by the time at which their answers went out."""
        lines = self._file.read_text(encoding="utf-8").splitlines()
        return [seen for line in lines for seen in _read(json.loads(line))]

    def by_device(self) -> dict[str, list[Seen]]:
        """Each device's, by the time at which they came."""
        found = defaultdict(list)
        for seen in sorted(self.readings(), key=lambda seen: seen.at_s):
            found[seen.device].append(seen)
        return found

    def check_each_plays_once(self) -> None:
        """No device sent from two machines, and none of its readings was taken twice or came after a later one."""
        for device, readings in self.by_device().items():
            assert len({seen.machine for seen in readings}) == 1, device
            taken = [seen.number for seen in readings if seen.accepted]
            assert taken == sorted(set(taken)), device


def _read(line: dict[str, Any]) -> Iterator[Seen]:
    if line["request"] != READINGS:
        return
    body = json.loads(line["body"])
    for each in body if isinstance(body, list) else [body]:
        yield Seen(
            float(line["at"]) - float(line["took"]),
            str(line["from"]),
            each["device_id"],
            each["sensor_data"][SEQUENCE_NAME],
            str(line["status"]).startswith("2"),
            line["api_key"],
        )


@contextlib.contextmanager
def witness(service_url: str, *more: str) -> Iterator[Witness]:
    """An nginx in front of a service; it listens on 127.0.0.1 and more addresses."""
    program = require_program("nginx", "nginx-light")
    with tempfile.TemporaryDirectory(prefix="witness-") as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        listens = " ".join(f"listen {address}:{port};" for address in ("127.0.0.1", *more))
        config = Path(folder) / "nginx.conf"
        service = service_url.removeprefix("http://")
        config.write_text(CONFIG.format(folder=folder, service=service, listens=listens))
        process = subprocess.Popen([program, "-c", str(config), "-p", folder])
        try:
            deadline_s = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None, "nginx did not start"
                assert time.monotonic() < deadline_s, "nginx does not listen"
                time.sleep(0.05)
            yield Witness(port, Path(folder) / "seen")
        finally:
            process.terminate()
            process.wait(10)
