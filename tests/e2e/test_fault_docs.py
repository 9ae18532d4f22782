"""``docs/faults.md``: every line of its table is tried with curl, in a shell, as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.service.config import ServiceConfig
from simulator.service.faults.model import EFFECTS
from simulator.service.server import RunningService

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `fault (.+?)` \| .+ \| (\d+) \|$", PAGE, re.MULTILINE)
FUNCTION = re.search(r"^fault\(\) .+$", PAGE, re.MULTILINE)
SEEN = {
    "latency": "HTTP/1.1 200 OK",
    "answer=": "HTTP/1.1 503 Service Unavailable",
    "answer:": "HTTP/1.1 429 Too Many Requests",
    '\'{"answer"': "x-kind: mine",
    "truncate": "HTTP/1.1 200 OK",
    "lose": "",
    "reset": "",
}


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with RunningService(ServiceConfig()) as service:
        keys = {"API_KEY": service.api_key, "SECRET_KEY": service.secret_key.reveal()}
        yield {**os.environ, **keys, "URL": service.base_url}


def test_the_page_has_a_line_for_every_effect() -> None:
    assert {name for name in EFFECTS if any(name in row for row, _ in ROWS)} == set(EFFECTS)


@pytest.mark.parametrize(("row", "code"), ROWS)
def test_each_line_ends_as_the_page_says(environment: dict[str, str], row: str, code: str) -> None:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        if os.environ.get("CI"):
            pytest.fail("needs curl and bash")
        pytest.skip("needs curl and bash")
    assert FUNCTION is not None
    script = f"{FUNCTION[0]}\nfault {row}\n"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr == "") == (int(code), code == "0"), done.stderr
    assert next((text for begin, text in SEEN.items() if row.startswith(begin)), "date: ") in done.stdout
    assert row.startswith(("lose", "reset")) == (done.stdout == "")
