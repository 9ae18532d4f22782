"""A run's progress, read from a file that grows, that is begun anew, and that somebody else wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import StorageError
from simulator.console.runs.progress import LINE_BYTES, NOTES_KEPT, SECONDS_KEPT, Progress


def line(event: str, **members: object) -> str:
    return json.dumps({"event": event, **members}) + "\n"


def test_whoever_comes_late_gets_the_begin_the_notes_and_the_last_seconds(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    lines = [line("run", scenario="x"), line("stage", text="planning")]
    for second in range(1000):
        lines += [line("second", second=second), line("note", text=str(second))]
    path.write_text("".join(lines))
    found = Progress(tmp_path).catch_up()
    assert [each.event for each in found[:1]] == ["run"]
    assert "stage" not in {each.event for each in found}  # the load runs: it is over
    seconds = [json.loads(each.data)["second"] for each in found if each.event == "second"]
    assert seconds == list(range(1000 - SECONDS_KEPT, 1000))
    assert sum(each.event == "note" for each in found) == NOTES_KEPT
    assert [each.end for each in found] == sorted(each.end for each in found)


def test_news_come_once_and_only_as_whole_lines(tmp_path: Path) -> None:
    path, progress = tmp_path / "progress.jsonl", Progress(tmp_path)
    assert progress.catch_up() == []
    path.write_text(line("run") + '{"event": "sec')
    assert [each.event for each in progress.news()] == ["run"]
    assert progress.news() == []
    with path.open("a") as file:
        file.write('ond", "second": 3}\n')
    assert [json.loads(each.data) for each in progress.news()] == [{"event": "second", "second": 3}]
    assert progress.news() == []


def test_a_watcher_that_comes_back_gets_what_it_has_not(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(line("run") + line("second", second=1) + line("second", second=2))
    first = Progress(tmp_path).catch_up()
    again = Progress(tmp_path).catch_up(first[1].end)
    assert [json.loads(each.data).get("second") for each in again] == [2]


def test_a_file_that_is_begun_anew_is_read_from_its_begin(tmp_path: Path) -> None:
    path, progress = tmp_path / "progress.jsonl", Progress(tmp_path)
    path.write_text(line("run", scenario="first", filler="x" * 100))
    progress.news()
    path.write_text(line("run", scenario="second"))
    assert [json.loads(each.data)["scenario"] for each in progress.news()] == ["second"]


@pytest.mark.parametrize(
    "foreign",
    [
        "no json\n",
        "[]\n",
        '"text"\n',
        '{"event": 7}\n',
        '{"event": "over"}\n',
        '{"event": ["run"]}\n',
        "[" * 5000 + "\n",
        '{"event": "note", "text": "' + "x" * LINE_BYTES + '"}\n',
        "\n",
        "\xff\xfe\n",
    ],
)
def test_lines_that_are_none_are_left_out(tmp_path: Path, foreign: str) -> None:
    (tmp_path / "progress.jsonl").write_text(line("run") + foreign + line("second", second=1), encoding="latin-1")
    assert [each.event for each in Progress(tmp_path).catch_up()] == ["run", "second"]


def test_a_line_without_an_end_that_is_larger_than_any_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_text("x" * 3_000_000 + "\n" + line("second", second=1))
    assert [each.event for each in Progress(tmp_path).catch_up()] == ["second"]


def test_a_text_with_line_breaks_stays_one_line_of_an_event(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_bytes(b'{"event": "note",\r "text": "a\\n\\nevent: over\\ndata: {}"}\n')
    (found,) = Progress(tmp_path).catch_up()
    assert b"\n" not in found.data
    assert b"\r" not in found.data
    assert json.loads(found.data)["text"] == "a\n\nevent: over\ndata: {}"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(line("note", text="msk_secret"))
    (tmp_path / "progress.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="is a link"):
        Progress(tmp_path).catch_up()
