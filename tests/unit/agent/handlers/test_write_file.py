"""``write_file``: in its folders, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.handlers.base import HandlerFailed
from agent.handlers.built_in import write_file
from agent.handlers.built_in.write_file import WriteFile
from agent.handlers.loaded import InvalidPayload, LoadedHandler


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    return made


@pytest.fixture
def write(folder, make_context):
    """Runs the handler with a payload; keyword arguments beginning with ``_`` are settings."""

    def run(path: object, *, text: str | None = "hello", **members):
        chosen = {name[1:]: value for name, value in members.items() if name.startswith("_")}
        handler = WriteFile(WriteFile.Settings(**{"folders": (str(folder),), **chosen}))
        payload = {name: value for name, value in members.items() if not name.startswith("_")}
        if text is not None and "base64" not in payload:
            payload["text"] = text
        loaded = LoadedHandler("write_file", handler, handler.contract, 30.0, "write_file")
        checked = loaded.validate({"path": str(path), **payload})
        if isinstance(checked, InvalidPayload):
            return checked
        return handler.handle(checked, make_context())

    return run


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def code_of(write, *arguments, **members) -> str:
    with pytest.raises(HandlerFailed) as caught:
        write(*arguments, **members)
    return caught.value.code


class TestWrites:
    def test_bytes_over_what_was_there_twice_is_the_same_as_once(self, write, folder):
        (folder / "a").write_text("old and longer")
        content = bytes(range(256))
        for _ in range(2):
            write(folder / "a", base64=base64.b64encode(content).decode(), sha256=hashlib.sha256(content).hexdigest())
        assert (folder / "a").read_bytes() == content
        assert names_in(folder) == ["a"]


class TestRefused:
    @pytest.mark.parametrize(
        "path",
        [
            "/etc/passwd",
            "relative",
            "{folder}",
            "{folder}/",
            "{folder}/a/",
            "{folder}/../secret",
            "{folder}/./a",
            "{folder}-next/a",
            "{folder}/a\x00b",
            "{folder}/a\nb",
            "{folder}/sub/a",
            "{folder}/" + "n" * 256,
            "{folder}/" + "d/" * 40 + "a",
        ],
    )
    def test_paths_that_are_no_name_in_a_folder(self, write, folder, tmp_path, path):
        assert code_of(write, path.replace("{folder}", str(folder))) == "path_not_allowed"
        assert [entry.name for entry in tmp_path.rglob("*")] == ["site"]

    def test_a_link_on_the_way(self, write, folder, tmp_path):
        (tmp_path / "outside").mkdir()
        (folder / "in").symlink_to(tmp_path / "outside")
        assert code_of(write, folder / "in" / "a") == "path_not_allowed"
        assert names_in(tmp_path / "outside") == []

    def test_a_link_that_appears_after_the_look_is_replaced_and_not_followed(
        self, write, folder, tmp_path, monkeypatch
    ):
        (tmp_path / "precious").write_text("precious")
        replace = write_file.replace_file

        def swap(path, *arguments, **members) -> None:
            path.symlink_to(tmp_path / "precious")
            replace(path, *arguments, **members)

        monkeypatch.setattr(write_file, "replace_file", swap)
        write(folder / "a")
        assert (tmp_path / "precious").read_text() == "precious"
        assert (folder / "a").read_text() == "hello"
        assert not (folder / "a").is_symlink()

    def test_a_link_as_the_file(self, write, folder, tmp_path):
        (tmp_path / "precious").write_text("precious")
        (folder / "a").symlink_to(tmp_path / "precious")
        assert code_of(write, folder / "a") == "path_not_allowed"
        assert (tmp_path / "precious").read_text() == "precious"

    def test_special_files_folders_and_hard_links(self, write, folder, tmp_path):
        os.mkfifo(folder / "fifo")
        (folder / "dir").mkdir()
        (tmp_path / "precious").write_text("precious")
        os.link(tmp_path / "precious", folder / "hard")
        for name in ("fifo", "dir", "hard"):
            assert code_of(write, folder / name) == "path_not_allowed"
        assert (tmp_path / "precious").read_text() == "precious"

    def test_a_file_that_runs_with_other_rights(self, write, folder):
        (folder / "a").write_text("")
        (folder / "a").chmod(0o4755)
        assert code_of(write, folder / "a") == "path_not_allowed"
        assert (folder / "a").stat().st_mode & stat.S_ISUID

    def test_a_file_of_another_user(self, write, folder, monkeypatch):
        (folder / "a").write_text("theirs")
        monkeypatch.setattr(os, "geteuid", lambda: 424242)
        assert code_of(write, folder / "a") == "path_not_allowed"
        assert (folder / "a").read_text() == "theirs"

    def test_modes_sizes_and_digests_that_are_not_allowed(self, write, folder):
        assert code_of(write, folder / "a", mode="0755") == "mode_not_allowed"
        assert code_of(write, folder / "a", text="123456", _max_bytes=5) == "too_large"
        assert code_of(write, folder / "a", sha256="0" * 64) == "wrong_sha256"
        assert code_of(write, folder / "a", base64="not base64!") == "invalid_content"
        assert isinstance(write(folder / "a", text="\ud800"), InvalidPayload)
        assert names_in(folder) == []

    def test_a_disk_that_refuses_leaves_what_was_there(self, write, folder, monkeypatch):
        (folder / "a").write_text("old")

        def full(_fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        assert code_of(write, folder / "a") == "not_written"
        assert names_in(folder) == ["a"]
        assert (folder / "a").read_text() == "old"


class TestSettings:
    @pytest.mark.parametrize("folder", ["/", "/etc", "/usr/", "relative", "/srv/../etc", "//etc", "/var/."])
    def test_folders_that_would_give_the_device_away(self, folder):
        with pytest.raises(ValidationError):
            WriteFile.Settings(folders=(folder,))


_STEPS = st.one_of(
    st.sampled_from(["..", ".", "", "a", "site", "link", "dir", "file", "x" * 300, "\n", "\x00", "é", "~", "*"]),
    st.text(max_size=6),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_STEPS, max_size=6), st.booleans())
def test_whatever_the_path_nothing_outside_the_folder_changes(tmp_path, write, folder, steps, below):
    """``folder`` has traps in it: links that lead out, a file where a folder is meant."""
    outside = tmp_path / "outside"
    if not outside.exists():
        outside.mkdir()
        (outside / "a").write_text("precious")
        (folder / "link").symlink_to(outside)
        (folder / "dir").mkdir()
        (folder / "dir" / "link").symlink_to("../..")
        (folder / "file").write_text("x")
    path = (f"{folder}/" if below else "/") + "/".join(steps)
    try:
        result = write(path, text="overwritten")
    except HandlerFailed:
        result = None
    assert (outside / "a").read_text() == "precious"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["outside", "site"]
    assert names_in(outside) == ["a"]
    if isinstance(result, dict):
        assert Path(os.path.realpath(result["path"])).is_relative_to(folder)
        assert Path(result["path"]).read_text() == "overwritten"
        Path(result["path"]).unlink()
