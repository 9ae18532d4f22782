from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.demo.folder import MARKER, open_folder


def test_a_new_folder_is_made_with_its_parts(tmp_path):
    with open_folder(tmp_path / "a" / "b") as folder:
        assert folder.root == tmp_path / "a" / "b"
        assert folder.labels.is_dir()
        assert folder.logs.is_dir()
        assert folder.agent.stat().st_mode & 0o077 == 0
        assert folder.service.stat().st_mode & 0o077 == 0


def test_what_an_earlier_demo_left_is_deleted(tmp_path):
    with open_folder(tmp_path / "out") as folder:
        folder.report.write_text("old")
        (folder.labels / "old.png").write_text("old")
        (folder.root / "link").symlink_to(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    with open_folder(tmp_path / "out") as folder:
        assert not folder.report.exists()
        assert list(folder.labels.iterdir()) == []
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_folder_that_the_demo_did_not_make_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="did not make"), open_folder(tmp_path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_may_be_used(tmp_path):
    with open_folder(tmp_path) as folder:
        assert (folder.root / MARKER).is_file()


def test_a_file_or_a_link_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("file", "link"):
        with pytest.raises(ConfigurationError, match="not a folder"), open_folder(tmp_path / name):
            pass


def test_two_demos_cannot_work_in_one_folder(tmp_path):
    with open_folder(tmp_path / "out") as first:
        first.report.write_text("mine")
        with pytest.raises(ConfigurationError, match="another demo is working"), open_folder(tmp_path / "out"):
            pass
        assert first.report.read_text() == "mine"


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"), open_folder(tmp_path / "file" / "out"):
        pass
