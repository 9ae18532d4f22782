"""Device tokens and codes: how they are made, kept, checked, rotated and taken back; and odd files in their place."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat

import pytest

from agent.errors import ConfigurationError, Refused
from gateway.codes import Codes, Terms
from gateway.tokens import BROKER_MARK, FILE_NAME, OVERLAP_S, Tokens, digest_of, id_fault, make_token

T0 = 1_767_225_600.0
DOOR = Terms(product_id="p1", user_id="me", url="http://127.0.0.1:8081")


class Clock:
    """Moved by hand."""

    def __init__(self):
        self.now_s = T0

    def __call__(self):
        return self.now_s


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE_NAME


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(path, clock):
    with Tokens(path, clock) as tokens:
        yield tokens


def issue(tokens, device_id):
    new = make_token()
    tokens.issue({device_id: new})
    return new.reveal()


# --- making -----------------------------------------------------------------------------------------------------------


def test_a_token_has_a_prefix_and_160_random_bits():
    texts = [make_token().reveal().removeprefix("dat_") for _ in range(200)]
    assert len(set("".join(texts))) == 62
    assert all(62 ** len(text) >= 2**160 for text in texts)


def test_what_is_kept_of_a_token_is_its_sha256_and_it_never_prints(tokens, path):
    new = make_token()
    tokens.issue({"d1": new})
    text = new.reveal()
    [(kept,)] = tokens.connection.execute("SELECT digest FROM token")
    assert kept == hashlib.sha256(text.encode()).digest() == digest_of(text)
    assert text.removeprefix("dat_").encode() not in path.read_bytes()
    assert text not in f"{new!r} {new}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("device_id", "word"),
    [
        ("a+b", "'+'"),
        ("a#", "'#'"),
        ("a/b", "'/'"),
        ("a\0b", "control"),
        ("a\u200bb", "invisible"),
        ("", "empty"),
        ("..", "dot"),
        ("\ud800", "surrogate"),
        ("x" * 256, "255"),
    ],
)
def test_an_id_that_could_reach_beyond_its_device_is_refused(device_id, word):
    assert word in id_fault(device_id)


# --- checking ---------------------------------------------------------------------------------------------------------


def test_what_another_process_issues_or_revokes_counts_at_once(tokens, path, clock):
    with Tokens(path, clock) as command:
        token = issue(command, "d1")
        assert tokens.device_of(token) == "d1"
        version = tokens.changed()
        assert (command.revoke("d1"), command.revoke("d1")) == (1, 0)
        assert tokens.changed() != version
        assert tokens.device_of(token) is None
        assert tokens.passwords() == {}


def test_the_old_token_is_good_for_a_day_when_nobody_uses_the_new_one(tokens, clock):
    old, new = (issue(tokens, "d1") for _ in range(2))
    assert tokens.device_of(old) == "d1"
    clock.now_s += OVERLAP_S
    assert [tokens.device_of(each) for each in (old, new)] == [None, "d1"]
    [listed] = tokens.listed()
    assert (listed["state"], listed["old_token_until"]) == ("valid", None)


def test_a_token_that_is_newer_than_the_used_one_stays(tokens):
    first, second, third = (issue(tokens, "d1") for _ in range(3))
    assert tokens.device_of(second) == "d1"
    assert tokens.device_of(third) == "d1"
    tokens.note_first_use()
    assert tokens.device_of(first) is None


@pytest.mark.parametrize("broker_is_behind", [False, True])
def test_a_new_token_that_came_through_the_broker_first_ends_the_old_one_unless_the_broker_lacks_it(
    tokens, path, broker_is_behind
):
    old, new = (issue(tokens, "d1") for _ in range(2))
    mark = path.with_name(BROKER_MARK)
    if broker_is_behind:
        mark.touch()
    tokens.note_device("d1")
    tokens.note_first_use()
    assert (tokens.device_of(old) is None) is not broker_is_behind
    assert tokens.device_of(new) == "d1"
    tokens.note_use()
    assert tokens.device_of(old) is None, "now it is sure which one the device has"


def test_a_token_that_is_not_in_the_file_any_more_ends_no_other(tokens):
    token = issue(tokens, "d1")
    assert tokens.device_of(token) == "d1"
    with tokens.connection:
        tokens.connection.execute("DELETE FROM token")
    again = issue(tokens, "d1")
    tokens.note_use()
    assert tokens.device_of(again) == "d1"


def test_when_a_token_was_used_last_is_kept_over_a_restart(path, clock):
    with Tokens(path, clock) as tokens:
        token = issue(tokens, "d1")
        assert tokens.is_new("d1")
        tokens.device_of(token)
        clock.now_s += 61
        tokens.device_of(token)
        assert tokens.is_new("d1"), "its first use is of this process"
    clock.now_s += 1
    with Tokens(path, clock) as tokens:
        assert [each["last_used_at"] for each in tokens.listed()] == ["2026-01-01T00:01:01Z"]
        assert not tokens.is_new("d1")
        issue(tokens, "d2")
        tokens.note_device("d2")  # over the broker
        tokens.note_first_use()
        assert tokens.listed()[1]["last_used_at"] == "2026-01-01T00:01:02Z"


def test_devices_that_come_for_the_first_time_are_written_down_in_one_commit(tokens):
    new = {f"d{number}": make_token() for number in range(100)}
    tokens.issue(new)
    statements: list[str] = []
    tokens.connection.set_trace_callback(statements.append)
    for device_id, token in new.items():
        if device_id.endswith("0"):
            tokens.note_device(device_id)
        else:
            assert tokens.device_of(token.reveal()) == device_id
    tokens.note_first_use()
    tokens.note_first_use()
    assert statements.count("COMMIT") == 1
    assert all(each["last_used_at"] for each in tokens.listed())


def test_a_backup_that_is_put_back_is_taken_over_and_no_file_at_all_is_told(tokens, path):
    before = issue(tokens, "d1")
    backup = path.read_bytes()
    after = issue(tokens, "d2")
    copy = path.with_suffix(".copy")
    copy.write_bytes(b"no database at all" * 100)
    copy.replace(path)
    with pytest.raises(ConfigurationError, match=FILE_NAME):
        tokens.follow()
    assert tokens.device_of(after) == "d2", "what is open stays in force"
    copy.write_bytes(backup)
    copy.replace(path)
    tokens.follow()
    assert tokens.device_of(before) == "d1"
    assert tokens.device_of(after) is None


# --- the file ---------------------------------------------------------------------------------------------------------


def other_database(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.execute("PRAGMA user_version=7")
    connection.close()


def truncated(path):
    with Tokens(path) as tokens:
        for number in range(200):
            issue(tokens, f"d{number}")
    os.truncate(path, 5000)


ODD = {
    "garbage": lambda path: path.write_bytes(b"garbage" * 500),
    "another database": other_database,
    "truncated": truncated,
    "a directory": lambda path: path.mkdir(),
    "a link": lambda path: path.symlink_to("elsewhere"),
    "a FIFO": os.mkfifo,
    "no directory": lambda path: path.parent.rmdir(),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_file_is_refused_in_one_line_with_the_fix(tmp_path, odd):
    folder = tmp_path / "state"
    folder.mkdir()
    ODD[odd](folder / FILE_NAME)
    with pytest.raises(ConfigurationError) as caught, Tokens(folder / FILE_NAME):
        pass
    [fault] = caught.value.faults
    assert str(folder / FILE_NAME) in fault
    assert "\n" not in fault
    assert "restore" in fault
    assert not (folder / "elsewhere").exists(), "nothing is made behind a link"


def test_a_commit_that_is_refused_leaves_nothing_open(tokens, path):
    """Else all that is written later would be part of it, and be lost."""
    tokens.connection.execute("PRAGMA busy_timeout=0")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM token").fetchall()  # who reads may go on, so that nobody can commit
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        issue(tokens, "d1")
    reader.close()
    issue(tokens, "d2")
    with Tokens(path) as other:
        assert list(other.passwords()) == ["d2"]


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def codes(tokens):
    return Codes(tokens)


def make(codes, *, terms=DOOR, expires_s=3600.0, count=1):
    return codes.make(terms, expires_s, count, None)


def test_an_expired_and_a_revoked_code_enroll_nobody_not_even_again_and_go_after_a_week(codes, clock):
    code, made = make(codes, count=3)
    clock.now_s += 3599.9
    codes.enroll(code.secret, "SN-1", "d1")
    clock.now_s = T0 + 3600.0
    for identifier in ("SN-1", "SN-2"):
        with pytest.raises(Refused, match="has expired"):
            codes.enroll(code.secret, identifier, "d2")
    clock.now_s = T0
    assert [codes.revoke(made.code_id) for _ in range(2)] == [True, False]
    with pytest.raises(Refused, match="was taken back"):
        codes.enroll(code.secret, "SN-1", "d1")
    clock.now_s += 8 * 86_400.0
    make(codes)
    assert len(codes.all()) == 1


def test_a_product_or_user_that_cannot_be_makes_no_code(codes):
    with pytest.raises(ConfigurationError, match="user_id"):
        make(codes, terms=Terms(product_id="p1", user_id="x" * 1_000))
    assert codes.all() == []
