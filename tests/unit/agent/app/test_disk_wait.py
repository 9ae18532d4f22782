"""Waiting at the start for a disk that refuses."""

from __future__ import annotations

import errno
import os

import pytest

from agent.app.disk_wait import REFUSALS, refusal, retry_until_disk_writable
from agent.app.lock import StateLock, holder_of
from agent.errors import StorageError
from tests.fakes import FakeNotifier


def refusing(errors: list[int]):
    def step() -> str:
        if errors:
            number = errors.pop(0)
            raise refusal("state_dir /x", OSError(number, os.strerror(number)))
        return "done"

    return step


def test_another_reason_is_said_too(caplog):
    wait = lambda _seconds: False  # noqa: E731
    retry_until_disk_writable(refusing([errno.ENOSPC, errno.EROFS, errno.EDQUOT]), FakeNotifier, pause=wait)
    assert caplog.text.count("disk=waiting") == 3
    assert "remount it" in caplog.text
    assert "quota" in caplog.text


@pytest.mark.parametrize("number", sorted(REFUSALS))
def test_a_lock_that_the_disk_refuses_is_no_fault_of_the_configuration(tmp_path, monkeypatch, number):
    def refuse(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("agent.app.lock.os.open", refuse)
    with pytest.raises(StorageError, match="cannot be written"), StateLock(tmp_path):
        pass


def test_a_lock_whose_process_cannot_be_written_down_is_held_all_the_same(tmp_path, monkeypatch):
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("agent.app.lock.os.pwrite", refuse)
        lock = StateLock(tmp_path)
        lock.__enter__()
    assert holder_of(tmp_path) == 0
    lock.note_process()
    assert holder_of(tmp_path) == os.getpid()
    lock.__exit__(None, None, None)
    assert holder_of(tmp_path) is None
