"""A real Prometheus that reads an address once a second, for tests of what it makes of our figures."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.ports import free_port

START_S: Final = 120.0
_CONFIG: Final = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: fleet
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@dataclass(slots=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, expression: str, at_s: float, **more: Any) -> list[dict[str, Any]]:
        """What an expression comes to at a time (seconds since the epoch).

        Raises:
            AssertionError: the server does not understand it.
        """
        return self._get("query", query=expression, time=at_s, **more)["result"]

    def ask_range(self, expression: str, begin_s: float, end_s: float) -> list[dict[str, Any]]:
        """What it comes to at each second of a time, as a plot asks for it; see :meth:`ask`."""
        return self._get("query_range", query=expression, start=begin_s, end=end_s, step=1)["result"]

    def label_names(self, metric: str) -> set[str]:
        """The labels that series of a metric have."""
        return set(self._get("labels", **{"match[]": metric})) - {"__name__", "instance", "job"}

    def metric_names(self) -> set[str]:
        """All metrics that were read."""
        return set(self._get("label/__name__/values"))

    def _get(self, path: str, **given: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=given, timeout=60, trust_env=False)
        assert answer.status_code == 200, f"{given}: {answer.text}"
        return answer.json()["data"]


@contextlib.contextmanager
def prometheus(program: str, folder: Path, scraped_port: int) -> Iterator[Prometheus]:
    """A Prometheus for the length of the block, that reads ``127.0.0.1:scraped_port/metrics``."""
    folder.mkdir(parents=True, exist_ok=True)
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(_CONFIG.format(port=scraped_port))
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        _wait(process, server.url, folder / "log")
        yield server
    finally:
        process.terminate()
        process.wait(START_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until_s = time.monotonic() + START_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/-/ready", timeout=5, trust_env=False).status_code == 200:
                return
        if process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"prometheus did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)
