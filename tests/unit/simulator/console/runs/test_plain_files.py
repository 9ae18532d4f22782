"""What is read of a folder that is anybody's: regular files, by no link, and not more than there is room for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, StorageError
from simulator.console.runs.plain_files import check_plain, read_plain


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert read_plain(tmp_path / "a", 3) == b"abc"
    assert read_plain(tmp_path / "b", 3) is None


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    match kind:
        case "link":
            (tmp_path / "secret").write_text("msk_secret")
            path.symlink_to(tmp_path / "secret")
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
    with pytest.raises(StorageError, match="thing (is a link|is no regular file)"):
        read_plain(path, 100)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(StorageError, match="a is larger than 1 MB"):
        read_plain(tmp_path / "a", 1024 * 1024)


@pytest.mark.parametrize("where", ["report.html", "audit/worker-0.jsonl"])
def test_a_folder_with_a_link_anywhere_is_given_to_no_other_program(tmp_path: Path, where: str) -> None:
    run = tmp_path / "run"
    (run / "audit").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    check_plain(run)
    (run / where).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="is a link, or no regular file"):
        check_plain(run)


def test_a_folder_that_is_a_link_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(ConfigurationError, match="link is a link"):
        check_plain(tmp_path / "link")
