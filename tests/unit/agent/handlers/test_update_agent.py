"""``update_agent`` without a network and without root: what it asks for, and what it reports."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.root_tasks import UpdateAgent


@pytest.fixture
def root(tmp_path) -> Path:
    for name in ("usr/libexec", "run/device-agent", "var/lib/device-agent/update", "var/lib/device-agent-releases"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "usr/libexec/device-agent-update").touch()
    (tmp_path / "var/lib/device-agent/update/release").write_bytes(b"a release")
    return tmp_path


@pytest.fixture
def handler(root) -> UpdateAgent:
    settings = UpdateAgent.Settings(root=root, give_up_s=0.01, answer_timeout_s=0.2, install_timeout_s=0.2)
    return UpdateAgent(settings)


DOWNLOADED = UpdateAgent.Payload(url="https://server/release", sha256=hashlib.sha256(b"a release").hexdigest())


def rejected(handler, context, given=DOWNLOADED) -> str:
    with pytest.raises(HandlerRejected) as caught:
        handler.handle(given, context)
    return caught.value.code


def test_an_agent_of_pip_says_why_it_cannot(handler, root, make_context):
    (root / "usr/libexec/device-agent-update").unlink()
    assert rejected(handler, make_context()) == "not_packaged"


def test_a_download_that_is_refused_rejects_the_command_and_leaves_nothing(handler, root, make_context):
    given = UpdateAgent.Payload(url="http://127.0.0.1:1/release", sha256="a" * 64)
    assert rejected(handler, make_context(), given) == "unreachable"
    assert not (root / "var/lib/device-agent/update").exists()


class Taken(threading.Event):
    """An event at whose waits root's unit takes the request."""

    def __init__(self, request: Path) -> None:
        super().__init__()
        self.request = request

    def wait(self, timeout: float | None = None) -> bool:
        self.request.unlink(missing_ok=True)
        return super().wait(timeout)


def test_taken_and_never_installed_is_a_failure_that_says_where_to_look(handler, root, make_context):
    with pytest.raises(HandlerFailed, match=r"no_answer: .*journalctl"):
        handler.handle(DOWNLOADED, make_context(stopping=Taken(root / "run/device-agent/update")))


def test_where_no_unit_waits_it_is_rejected_with_what_to_do(handler, root, make_context):
    with pytest.raises(HandlerRejected, match=r"not_allowed: .* systemctl enable --now device-agent-update.path"):
        handler.handle(DOWNLOADED, make_context())
    assert not (root / "run/device-agent/update").exists()
