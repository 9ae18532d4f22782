"""The helper: what it believes, what it allows, what it says; in directories of the test's own, without systemd."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.helper.__main__ import Places, Unremovable, serve, take_request
from agent.helper.exchange import (
    HelperAnswer,
    HelperRequest,
    MalformedFile,
    parse_request,
    read_answer,
    write_file,
)
from agent.helper.rules import ACTIONS, RequestDenied, Rules, judge, read_rules

ME = os.geteuid()
ALLOWED = 'allow = ["reboot"]\nmin_uptime_s = 300\n'
NOW_S = 10_000.0


@dataclass
class Bench:
    """A helper's world; the system was started at 1000 s and it is 10,000 s now."""

    folder: Path
    done: list[object] = field(default_factory=list)
    fault: str | None = None

    @property
    def places(self) -> Places:
        names = [self.folder / name for name in ("agent/request.json", "helper/answer.json", "helper.toml")]
        return Places(*names, agent_id=ME, root_id=ME)

    def put(self, content: HelperRequest | bytes) -> None:
        if isinstance(content, bytes):
            self.places.request.write_bytes(content)
            self.places.request.chmod(0o600)
        else:
            write_file(self.places.request, content, 0o600)

    def serve(self, now_s: float = NOW_S) -> int:
        def act(argv: object) -> str | None:
            # By now the answer is there, and no request is left that could be acted on again.
            assert self.answer() == HelperAnswer("c1", "accepted")
            assert not self.places.request.exists()
            self.done.append(argv)
            return self.fault

        return serve(self.places, clock=lambda: now_s, started_s=1000.0, act=act)

    def answer(self) -> HelperAnswer | None:
        return read_answer(self.places.answer, "c1")

    def refusal(self) -> str:
        answer = self.answer()
        assert answer is not None
        assert answer.state == "refused"
        return answer.code


@pytest.fixture
def bench(tmp_path) -> Bench:
    for name in ("agent", "helper"):
        (tmp_path / name).mkdir(mode=0o750)
    (tmp_path / "helper.toml").write_text(ALLOWED)
    (tmp_path / "helper.toml").chmod(0o644)
    return Bench(tmp_path)


def request(**changes) -> HelperRequest:
    return HelperRequest(**({"id": "c1", "action": "reboot", "asked_s": NOW_S - 1} | changes))


def test_what_is_asked_and_allowed_is_done_after_the_answer_is_there(bench):
    bench.put(request())
    assert bench.serve() == 0
    assert bench.done == [ACTIONS["reboot"]]
    assert stat.S_IMODE(bench.places.answer.stat().st_mode) == 0o644


def test_one_request_is_acted_on_once(bench):
    bench.put(request())
    bench.serve()
    assert bench.serve() == 0
    assert len(bench.done) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"action": "poweroff"}, "not_allowed"),
        ({"action": "reboot; rm -rf /"}, "not_allowed"),
        ({"asked_s": NOW_S - 61}, "stale"),
        ({"asked_s": NOW_S + 1}, "stale"),
        ({"asked_s": -1.0}, "stale"),
    ],
)
def test_a_request_that_is_not_allowed_or_not_new_is_refused_and_gone(bench, changes, code):
    bench.put(request(**changes))
    assert bench.serve() == 0
    assert bench.refusal() == code
    assert bench.done == []
    assert not bench.places.request.exists()


def test_a_request_of_an_earlier_boot_is_stale_also_within_its_minute(bench):
    bench.put(request(asked_s=990.0))
    bench.serve(now_s=1040.0)
    assert bench.refusal() == "stale"


def test_a_system_that_has_just_started_is_not_restarted(bench):
    bench.put(request(asked_s=1290.0))
    bench.serve(now_s=1299.0)
    assert bench.refusal() == "too_soon"
    bench.put(request(asked_s=1299.0))
    bench.serve(now_s=1300.0)
    assert bench.done == [ACTIONS["reboot"]]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("allow = []\n", "not_allowed", "allows nothing"),
        ("", "not_allowed", "allows nothing"),
        ("allow = ['shell']\n", "misconfigured", "a list out of: reboot"),
        ("allow = 'reboot'\n", "misconfigured", "must be a list"),
        ("alow = ['reboot']\n", "misconfigured", "unknown key alow"),
        ("allow = ['reboot']\nmin_uptime_s = true\n", "misconfigured", "a number of seconds"),
        ("allow = ['reboot']\nmin_uptime_s = nan\n", "misconfigured", "a number of seconds"),
        ("allow = [", "misconfigured", "helper.toml"),
        ("x" * 70_000, "misconfigured", "larger than"),
    ],
)
def test_a_configuration_that_allows_nothing_or_is_wrong_lets_nothing_happen(bench, text, code, says):
    bench.places.configuration.write_text(text)
    bench.put(request())
    assert bench.serve() == 0
    assert bench.refusal() == code
    assert says in bench.answer().message
    assert bench.done == []


def test_a_configuration_that_others_can_write_or_that_is_a_link_counts_for_nothing(bench, tmp_path):
    path = bench.places.configuration
    path.chmod(0o664)
    with pytest.raises(RequestDenied, match="nobody else may write"):
        read_rules(path, ME)
    path.chmod(0o644)
    with pytest.raises(RequestDenied, match="root owns"):
        read_rules(path, ME + 1)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(RequestDenied, match="misconfigured"):
        read_rules(tmp_path / "link", ME)
    assert read_rules(path, ME) == Rules(frozenset({"reboot"}), 300.0)


def _link(path: Path) -> None:
    path.with_name("target").write_text(json.dumps({"id": "c1", "action": "reboot", "asked_s": NOW_S}))
    path.with_name("target").chmod(0o600)
    path.symlink_to("target")


def _second_name(path: Path) -> None:
    _link(path)
    path.unlink()
    os.link(path.with_name("target"), path)


def _open_to_others(path: Path) -> None:
    write_file(path, request(), 0o640)


@pytest.mark.parametrize(
    "make", [_link, _second_name, _open_to_others, os.mkfifo, Path.mkdir], ids=lambda make: make.__name__
)
def test_what_is_no_file_of_the_agents_own_is_not_read_and_gone(bench, make):
    make(bench.places.request)
    assert bench.serve() == 1
    assert bench.done == []
    assert bench.answer() is None
    assert not os.path.lexists(bench.places.request)


def test_a_request_of_another_user_or_in_a_directory_that_others_write_is_not_read(bench):
    bench.put(request())
    with pytest.raises(MalformedFile, match="not the agent's"):
        take_request(bench.places.request, ME + 1)
    bench.put(request())
    bench.places.request.parent.chmod(0o770)
    with pytest.raises(MalformedFile, match="not the agent's alone"):
        take_request(bench.places.request, ME)


def test_a_directory_that_is_a_link_is_not_followed(bench, tmp_path):
    bench.put(request())
    (tmp_path / "other").symlink_to(bench.places.request.parent)
    with pytest.raises(OSError, match="Not a directory"):
        take_request(tmp_path / "other" / "request.json", ME)
    assert bench.places.request.exists()


def test_what_cannot_be_deleted_is_not_acted_on(bench):
    bench.places.request.mkdir()
    (bench.places.request / "full").touch()
    with pytest.raises(Unremovable):
        bench.serve()
    assert bench.done == []


GOOD = {"id": "c1", "action": "reboot", "asked_s": 1.5}


@given(st.binary(max_size=300) | st.builds(lambda value: json.dumps(value).encode(), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "argv"]), inner),
)))  # fmt: skip
def test_whatever_bytes_come_they_are_a_request_or_malformed(data):
    try:
        found = parse_request(data)
    except MalformedFile:
        return
    assert found.id.isprintable()
    with pytest.raises(RequestDenied):
        judge(found, Rules(), asked_ago_s=1.0, uptime_s=1000.0)


def test_writing_goes_past_a_link_that_lies_where_the_new_file_is_made(bench, tmp_path):
    (tmp_path / "precious").write_text("mine")
    path = bench.places.answer
    path.with_name(f".{path.name}.new").symlink_to(tmp_path / "precious")
    write_file(path, HelperAnswer("c1", "accepted"), 0o644)
    assert (tmp_path / "precious").read_text() == "mine"
    assert read_answer(path, "c1") == HelperAnswer("c1", "accepted")
