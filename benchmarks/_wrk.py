"""wrk: a load generator for one HTTP route that is not ours. As many users as connections; each sends again at once."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Load:
    """What one run came to.

    Attributes:
        requests: answers that came within the time.
        per_s: answers in a second.
        p50_ms: from sending a request to the end of its answer, under as much load as the server takes.
        p99_ms: the same.
    """

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float


def is_here() -> bool:
    """Whether it is installed; says what to install where it is not."""
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk")
        return False
    return True


@contextlib.contextmanager
def command(
    url: str, *, headers: Mapping[str, str], body: str | None, connections: int, seconds: float
) -> Iterator[list[str]]:
    """The command line of a run: POST with a body, GET without. Its script is removed at the end of the block."""
    lines = [f"wrk.headers[{name!r}]={value!r}" for name, value in headers.items()]
    if body is not None:
        lines += ["wrk.method='POST'", f"wrk.body={body!r}", "wrk.headers['content-type']='application/json'"]
    with _script_file("\n".join(lines), url, connections, seconds) as words:
        yield words


@contextlib.contextmanager
def _script_file(script: str, url: str, connections: int, seconds: float) -> Iterator[list[str]]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        settings = ["-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}s", "--latency", "--timeout", "30s"]
        yield ["wrk", *settings, "-s", file.name, url]


def read(text: str) -> Load:
    """What wrk printed.

    Raises:
        RuntimeError: a request failed.
    """
    if wrong := re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", text):
        raise RuntimeError(f"wrk: {wrong[0]}")
    requests, rate = re.search(r"(\d+) requests in", text), re.search(r"Requests/sec:\s*([\d.]+)", text)
    shares = dict(re.findall(r"(50|99)%\s+([\d.]+(?:us|ms|s))", text))
    assert requests is not None
    assert rate is not None
    return Load(int(requests[1]), float(rate[1]), _milliseconds(shares["50"]), _milliseconds(shares["99"]))


def load(url: str, *, headers: Mapping[str, str], body: str | None, connections: int = 64, seconds: float = 5) -> Load:
    """Run it on any core."""
    with command(url, headers=headers, body=body, connections=connections, seconds=seconds) as words:
        return _run(words)


def run_script(url: str, script: str, *, connections: int, seconds: float) -> Load:
    """Run it on any core with a script in Lua that makes each request."""
    with _script_file(script, url, connections, seconds) as words:
        return _run(words)


def _run(words: list[str]) -> Load:
    return read(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * _MILLISECONDS[unit]
