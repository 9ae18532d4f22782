"""``write_file``: what it writes, and that nothing outside its folders changes."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest

from agent.handlers.base import HandlerFailed
from agent.handlers.registry import read_payload
from agent.handlers.write_file import WriteFile


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def write(folder, make_context):
    """Runs the handler with this payload."""

    def run(path: object, *, max_bytes: int = 1000, **members):
        handler = WriteFile(WriteFile.Settings(folders=(str(folder),), max_bytes=max_bytes))
        members = members or {"text": "hello"}
        return handler.handle(read_payload(handler, {"path": str(path), **members}), make_context())

    return run


def code_of(write, path, **members) -> str:
    with pytest.raises(HandlerFailed) as caught:
        write(path, **members)
    return caught.value.code


def test_bytes_over_what_was_there_twice_is_the_same_as_once(write, folder):
    content = bytes(range(256))
    (folder / "a").write_text("before")
    for _ in range(2):
        result = write(folder / "a", base64=base64.b64encode(content).decode())
        assert result == {"path": f"{folder}/a", "size_bytes": 256, "sha256": hashlib.sha256(content).hexdigest()}
    assert (folder / "a").read_bytes() == content
    assert (folder / "a").stat().st_mode & 0o7777 == 0o644
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "path",
    [
        *["/etc/passwd", "relative", "{folder}", "{folder}/", "{folder}/../secret", "{folder}/./a", "{folder}-next/a"],
        *["{folder}/sub/a", "{folder}/a\0b", "{folder}/a\nb", "{folder}/..", "{folder}/" + "n" * 251],
    ],
)
def test_a_path_that_is_no_name_in_a_folder_is_rejected(write, folder, path):
    (folder / "sub").mkdir()
    assert code_of(write, path.format(folder=folder)) == "path_not_allowed"
    assert [path.name for path in folder.iterdir()] == ["sub"]


def test_whatever_has_the_name_is_replaced_and_no_link_is_followed(write, folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "link").symlink_to(secret)
    os.link(secret, folder / "hard")
    os.mkfifo(folder / "fifo")
    for name in ("link", "hard", "fifo"):
        write(folder / name)
        assert (folder / name).read_text() == "hello"
        assert (folder / name).lstat().st_nlink == 1
    assert secret.read_text() == "secret"
    (folder / "sub").mkdir()
    assert code_of(write, folder / "sub") == "not_written"


def test_content_that_cannot_be_is_rejected(write, folder):
    assert code_of(write, folder / "a", text="x" * 1001) == "too_large"
    assert code_of(write, folder / "a", base64="not base64!") == "invalid_content"
    assert code_of(write, folder / "a", text="a", base64="YQ==") == "invalid_payload"
    assert code_of(write, folder / "a", text="\ud800") == "invalid_payload"
    assert not list(folder.iterdir())


def test_a_disk_that_refuses_leaves_what_was_there(write, folder, monkeypatch):
    (folder / "a").write_text("before")

    def refuse(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    assert code_of(write, folder / "a") == "not_written"
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("a", "before")]


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/", "/etc/.", "relative", "/srv/../etc", "//srv"])
def test_a_folder_that_holds_the_device_is_refused(folder):
    with pytest.raises(ValueError, match="folders"):
        WriteFile.Settings(folders=(folder,))


def test_a_folder_that_is_not_there_is_found_at_the_start(tmp_path):
    with pytest.raises(ValueError, match="ReadWritePaths="):
        WriteFile(WriteFile.Settings(folders=(str(tmp_path / "gone"),))).check()
