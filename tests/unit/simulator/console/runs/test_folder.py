"""A folder of runs: whole ones, broken ones, half-written ones, foreign ones; each is shown as what it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from simulator.console.runs.folder import RunsFolder, is_name
from simulator.console.runs.records import RunShown, RunState
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.writing import record_text
from tests.fleet_runs import Shape, a_run

GOOD = a_run(Shape(duration_s=40, rate_per_s=40, good=True))
BAD = a_run(Shape(duration_s=40, rate_per_s=40))


def kept(folder: Path, run: tuple[Any, list[Any]] = GOOD) -> Path:
    """A run that ended, with its reports."""
    record, seconds = run
    with RunFolder(folder) as made:
        for second in seconds:
            made.append(second)
        finish_run(made, replace(record, seconds=len(seconds)))
    return folder


def shown(tmp_path: Path, name: str) -> RunShown:
    folder = RunsFolder(tmp_path)
    run = folder.find(name)
    assert run is not None
    return folder.show(run)


def test_a_run_is_shown_with_verdict_figures_and_files(tmp_path: Path) -> None:
    kept(tmp_path / "one")
    run = shown(tmp_path, "one")
    assert run["state"] is RunState.ENDED
    assert run["verdict"] == {
        "word": "passed",
        "exit_code": 0,
        "sentences": ["every threshold held and every reading was read back"],
    }
    assert (run["scenario"], run["devices"], run["duration_s"], run["lost"]) == ("steady-10k", 10_000, 40.0, 0)
    units = {figure["name"]: figure["unit"] for figure in run["figures"]}
    assert units["http.sensor_data p99"] == "s"
    assert units["errors"] == "share"
    assert [each["held"] for each in run["thresholds"]] == [True, True, True]
    assert {"report.html", "summary.csv", "run.json", "seconds.jsonl"} <= set(run["files"])
    assert run["size_bytes"] > 1000
    assert not run["live"]


def test_a_run_that_lost_data_says_how_much(tmp_path: Path) -> None:
    kept(tmp_path / "bad", BAD)
    run = shown(tmp_path, "bad")
    assert run["verdict"] is not None
    assert run["verdict"]["word"] == "lost"
    assert run["lost"] == 2


def test_the_latest_run_comes_first(tmp_path: Path) -> None:
    for at, name in enumerate(("old", "new", "older")):
        kept(tmp_path / name)
        os.utime(tmp_path / name / "run.json", (1000 - at if name == "older" else 2000 + at,) * 2)
    assert [run.id for run in RunsFolder(tmp_path).all()] == ["new", "old", "older"]


def test_a_run_that_goes_on_is_running_and_one_that_was_killed_is_that(tmp_path: Path) -> None:
    record = replace(GOOD[0], ended_at="")
    with RunFolder(tmp_path / "one") as folder:
        folder.keep(record)
        assert shown(tmp_path, "one")["state"] is RunState.RUNNING
        assert shown(tmp_path, "one")["verdict"] is None
    assert shown(tmp_path, "one")["state"] is RunState.UNKNOWN  # nothing says whether somebody still has it
    (tmp_path / "one" / ".running").touch()
    assert shown(tmp_path, "one")["state"] is RunState.KILLED


def test_a_record_that_changes_is_read_anew(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path)
    path = kept(tmp_path / "one") / "run.json"
    run = folder.find("one")
    assert run is not None
    assert folder.show(run)["scenario"] == "steady-10k"
    path.write_text(record_text(replace(GOOD[0], name="renamed")))
    assert folder.show(run)["scenario"] == "renamed"


def _half(path: Path) -> None:
    path.write_text(path.read_text()[:500])


def _foreign(path: Path) -> None:
    path.write_text('{"format": "somebody-elses/7"}')


def _odd(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": "many"}))


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 10)


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_half, "no JSON"),
        (_foreign, "format is 'somebody-elses/7'"),
        (_odd, "devices"),
        (_binary, "no JSON"),
        (_deep, "no JSON"),
        (_link, "is a link"),
        (_pipe, "is no regular file"),
        (_gone, "is not there"),
    ],
)
def test_a_damaged_run_is_shown_as_that_with_the_reason(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    kept(tmp_path / "good")
    damage(kept(tmp_path / "bad") / "run.json")
    run = shown(tmp_path, "bad")
    assert run["state"] is RunState.UNREADABLE
    assert run["verdict"] is None
    assert words in (run["fault"] or "")
    assert {found.id for found in RunsFolder(tmp_path).all()} == {"good", "bad"}


def test_a_damaged_histogram_makes_the_run_unreadable_and_nothing_else(tmp_path: Path) -> None:
    path = kept(tmp_path / "bad") / "run.json"
    document = json.loads(path.read_text())
    document["operations"]["http.poll"]["ok"]["response"] = "A" * 40
    path.write_text(json.dumps(document))
    assert shown(tmp_path, "bad")["state"] is RunState.UNREADABLE


def test_texts_of_a_foreign_record_are_cut(tmp_path: Path) -> None:
    path = kept(tmp_path / "long") / "run.json"
    path.write_text(record_text(replace(GOOD[0], name="n" * 1_000_000)))
    assert len(shown(tmp_path, "long")["scenario"]) == 500


def test_only_folders_with_a_run_in_them_are_runs(tmp_path: Path) -> None:
    kept(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "run.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert [run.id for run in RunsFolder(tmp_path).all()] == ["run"]


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../run", "run/../run", "/etc", ".hidden", "a\\b", "a\0b", "a\nb", "n" * 256, "link"]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    runs = tmp_path / "runs"
    kept(runs / "run")
    kept(tmp_path / "outside")
    (runs / "link").symlink_to(tmp_path / "outside")
    assert RunsFolder(runs).find(name) is None


def test_a_name_may_have_spaces_and_letters_of_any_language() -> None:
    assert is_name("Läufe vom 3. März")


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path / "none")
    assert folder.all() == []
    assert folder.find("x") is None
    assert not (tmp_path / "none").exists()


def test_a_run_itself_is_no_folder_of_runs(tmp_path: Path) -> None:
    kept(tmp_path / "one")
    with pytest.raises(ConfigurationError, match="is a run itself: name the folder that it is in"):
        RunsFolder(tmp_path / "one").check()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        RunsFolder(tmp_path / "file").check()
    assert RunsFolder(tmp_path / "file").all() == []
