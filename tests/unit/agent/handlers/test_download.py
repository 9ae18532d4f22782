"""Downloading a release: whole or not at all, resumed, bounded."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent.handlers.base import HandlerRejected
from agent.handlers.download import download
from agent.handlers.root_tasks import UpdateAgent

DATA = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves :data:`DATA`.

    Attributes:
        script: what the next requests get: a status, or ``cut`` for half an answer.
        ranges: the ranges that were asked for.
        resumes: whether it takes ranges.
    """

    script: list[int | str]
    ranges: list[str | None]
    resumes = True


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        step = self.server.script.pop(0) if self.server.script else ""
        if isinstance(step, int):
            self.send_response(step)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.resumes else 0
        rest = DATA[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: len(rest) // 2] if step == "cut" else rest)
        self.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), _Handler)
    made.script, made.ranges = [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch) -> None:
    monkeypatch.setattr("agent.handlers.download._MOST_WAIT_S", 0.01)


@pytest.fixture
def fetch(server, tmp_path, make_context):
    """Fetches :data:`DATA`, under other limits where they are given; the file."""

    def fetching(sha256: str = hashlib.sha256(DATA).hexdigest(), **limits: float) -> Path:
        settings = UpdateAgent.Settings(**{"max_bytes": 10**6, "give_up_s": 30.0, **limits})
        url = f"http://127.0.0.1:{server.server_port}/x.release"
        assert download(url, sha256, tmp_path / "release", settings, make_context())
        return tmp_path / "release"

    return fetching


@pytest.fixture
def refusal(fetch, tmp_path):
    def refused(**changes) -> str:
        with pytest.raises(HandlerRejected) as caught:
            fetch(**changes)
        assert not (tmp_path / "release").exists()
        return caught.value.code

    return refused


def test_what_was_cut_off_goes_on_where_it_was(server, fetch):
    server.script = ["cut", 503, "cut"]
    assert fetch().read_bytes() == DATA
    half = len(DATA) // 2
    assert server.ranges == [None, f"bytes={half}-", f"bytes={half}-", f"bytes={half + half // 2}-"]


def test_a_server_that_does_not_resume_begins_anew(server, fetch):
    server.script, server.resumes = ["cut"], False
    assert fetch().read_bytes() == DATA


def test_what_cannot_be_taken_is_refused_in_one_line(server, refusal):
    assert refusal(sha256="0" * 64) == "wrong_sha256"
    assert refusal(max_bytes=1024) == "too_large"
    for status in (404, 302):
        server.script = [status]
        assert refusal() == "not_there"
    server.script = [500] * 10
    assert refusal(give_up_s=0.001) == "unreachable"


def test_a_disk_without_room_is_seen_before_the_download(refusal, monkeypatch):
    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr("agent.handlers.download.os.statvfs", lambda path: Full)
    assert refusal() == "not_enough_disk"
