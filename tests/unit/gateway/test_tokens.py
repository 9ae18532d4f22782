"""Device tokens: how they are made, kept, checked, rotated and taken back."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import stat
import subprocess
import sys

import pytest

from agent.errors import ConfigurationError
from gateway.devices.token_file import DeviceTokenFile
from gateway.devices.token_table import TokenTable
from gateway.devices.tokens import digest_of, id_fault, looks_like_token, make_token, mosquitto_password
from tests.conftest import require_program

T0 = 1_767_225_600.0


class Clock:
    """Both clocks, moved by hand."""

    def __init__(self):
        self.now_s = T0

    def __call__(self):
        return self.now_s


def issue(path, *device_ids, now_s=T0, overlap_s=0.0, seed=1):
    """A new token for each device; the tokens as text."""
    source = random.Random(f"{seed} {now_s} {device_ids}")
    new = {device_id: make_token(source.randbytes) for device_id in device_ids}
    with DeviceTokenFile(path) as file:
        file.issue(new, now_s, overlap_s)
    texts = [token.token.reveal() for token in new.values()]
    return texts[0] if len(texts) == 1 else texts


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.db"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(path, clock):
    table = TokenTable(path, wall=clock, monotonic=clock)
    yield table
    table.close()


# --- making -------------------------------------------------------------------------------------------------------


def test_a_token_has_a_prefix_and_at_least_160_random_bits():
    token = make_token(random.Random(1).randbytes).token.reveal()
    assert looks_like_token(token)
    assert token.startswith("dat_")
    assert 62 ** (len(token) - len("dat_")) >= 2**160


def test_each_letter_of_a_token_is_equally_likely():
    source = random.Random(1)
    letters = "".join(make_token(source.randbytes).token.reveal().removeprefix("dat_") for _ in range(2000))
    counts = [letters.count(letter) for letter in sorted(set(letters))]
    assert len(counts) == 62
    assert max(counts) / min(counts) < 1.4


def test_what_is_kept_of_a_token_is_its_sha256_and_never_the_token(path):
    token = issue(path, "d1")
    with DeviceTokenFile(path) as file:
        [kept] = file.tokens()
    assert kept.digest == hashlib.sha256(token.encode()).digest() == digest_of(token)
    assert token.encode() not in path.read_bytes()
    assert token.removeprefix("dat_").encode() not in path.read_bytes()


def test_a_token_never_prints():
    new = make_token(random.Random(1).randbytes)
    assert new.token.reveal() not in f"{new!r} {new.token}"


@pytest.mark.parametrize("device_id", ["0190c7a4-5b1e-7cc1-9a55-000000000001", "SN 1", "urn:dev:1", "ä", "a.b~c_d"])
def test_an_ordinary_device_id_may_have_a_token(device_id):
    assert id_fault(device_id) is None


@pytest.mark.parametrize(
    ("device_id", "word"),
    [
        ("a+b", "'+'"),
        ("a#", "'#'"),
        ("a/b", "'/'"),
        ("a\0b", "NUL"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a\u200bb", "invisible"),
        (" a", "space"),
        ("", "empty"),
        ("..", "dot"),
        ("\ud800", "surrogate"),
        ("x" * 256, "255"),
    ],
)
def test_an_id_that_could_reach_beyond_its_device_is_refused(device_id, word):
    assert word in id_fault(device_id)


def test_mosquittos_own_program_makes_the_same_password_entry(tmp_path):
    program = require_program("mosquitto_passwd", "mosquitto")
    file = tmp_path / "passwords"
    subprocess.run([program, "-b", "-c", file, "d1", "a secret"], check=True, capture_output=True, timeout=120)
    entry = file.read_text().strip().removeprefix("d1:")
    import base64

    _, kind, iterations, salt, _ = entry.split("$")
    assert (kind, iterations) == ("7", "101")
    assert mosquitto_password("a secret", base64.b64decode(salt)) == entry


# --- checking -----------------------------------------------------------------------------------------------------


def test_a_token_is_good_for_its_own_device_only(path, clock):
    first, second = issue(path, "d1", "d2")
    table = TokenTable(path, wall=clock, monotonic=clock)
    assert table.device_of(first) == "d1"
    assert table.device_of(second) == "d2"
    assert table.device_of("") is None
    assert table.device_of("dat_" + "x" * 32) is None
    assert table.device_of("\ud800") is None
    assert set(table.device_ids()) == {"d1", "d2"}
    table.close()


def test_a_token_that_is_issued_or_revoked_meanwhile_counts_at_the_next_look(path, table):
    token = issue(path, "d1")
    assert table.device_of(token) is None
    table.look()
    assert table.device_of(token) == "d1"
    with DeviceTokenFile(path) as file:
        assert file.revoke("d1", T0) == 1
        assert file.revoke("d1", T0) == 0
    table.look()
    assert table.device_of(token) is None
    assert table.device_ids() == frozenset()


def test_the_running_table_looks_by_itself(path):
    table = TokenTable(path)
    table.start()
    token = issue(path, "d1", now_s=T0)
    waited = table._stop
    for _ in range(1200):
        if table.device_of(token):
            break
        waited.wait(0.05)
    assert table.device_of(token) == "d1"
    table.close()


def test_the_old_token_is_good_until_its_time_is_up(path, table, clock):
    old = issue(path, "d1")
    issue(path, "d1", overlap_s=60, seed=2)
    table.look()
    assert table.device_of(old) == "d1"
    clock.now_s += 60
    assert table.device_of(old) is None
    assert set(table.device_ids()) == {"d1"}


def test_the_old_token_ends_when_the_new_one_is_used(path, table, clock):
    old = issue(path, "d1")
    new = issue(path, "d1", overlap_s=3600, seed=2)
    table.look()
    assert table.device_of(old) == "d1"
    assert table.device_of(new) == "d1"
    assert table.device_of(old) is None
    table.look()
    with DeviceTokenFile(path) as file:
        assert [token.state(clock()) for token in file.tokens()] == ["ended", "valid"]


def test_without_overlap_a_rotated_token_ends_at_once(path, table):
    old = issue(path, "d1")
    new = issue(path, "d1", seed=2)
    table.look()
    assert table.device_of(old) is None
    assert table.device_of(new) == "d1"


def test_when_a_token_was_used_last_is_written_down_in_a_while(path, table, clock):
    token = issue(path, "d1")
    table.look()
    table.device_of(token)
    clock.now_s += 61
    table.look()
    with DeviceTokenFile(path) as file:
        assert [kept.last_used_at for kept in file.tokens("d1")] == [T0]


def test_a_restart_knows_what_the_table_knew(path, clock):
    token = issue(path, "d1")
    table = TokenTable(path, wall=clock, monotonic=clock)
    table.device_of(token)
    table.close()
    again = TokenTable(path, wall=clock, monotonic=clock)
    assert again.device_of(token) == "d1"
    again.close()


def test_a_file_put_back_from_a_backup_is_taken_over(path, table):
    before = issue(path, "d1")
    backup = path.read_bytes()
    after = issue(path, "d2")
    table.look()
    copy = path.with_suffix(".copy")
    copy.write_bytes(backup)
    copy.replace(path)
    table.look()
    assert table.device_of(before) == "d1"
    assert table.device_of(after) is None
    assert set(table.device_ids()) == {"d1"}


@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_a_file_that_cannot_be_read_leaves_the_tokens_from_before_in_force(path, table, damage, caplog):
    token = issue(path, "d1")
    table.look()
    path.unlink()
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 100)
    table.look()
    table.look()
    assert table.device_of(token) == "d1"
    assert sum("tokens=stale" in line for line in caplog.messages) == 1
    with pytest.raises(ConfigurationError, match="tokens.db"):
        table.reload()


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_alone(path):
    issue(path, "d1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_keeps_the_rollback_journal(path):
    issue(path, "d1")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@pytest.mark.parametrize("content", [b"garbage" * 500, None])
def test_a_file_that_is_none_of_ours_is_refused_with_a_fix(path, content):
    if content is not None:
        path.write_bytes(content)
    target = path if content is not None else path / "in" / "no" / "directory"
    with pytest.raises(ConfigurationError, match="restore|create it"):
        DeviceTokenFile(target)


def test_a_newer_version_of_the_file_is_left_alone(path):
    with DeviceTokenFile(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=7")
    connection.close()
    with pytest.raises(ConfigurationError, match="version is 7"):
        DeviceTokenFile(path)


def test_a_writer_that_is_killed_in_the_middle_leaves_the_tokens_from_before(path):
    token = issue(path, "d1")
    script = f"""
import os, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN IMMEDIATE")
for n in range(2000):
    connection.execute("INSERT INTO token SELECT randomblob(32), 'x' || ?, 1, hex(zeroblob(100)), 1, 1, 1, 1, 99 "
        "FROM token LIMIT 1", (n,))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert done.returncode == -9
    with DeviceTokenFile(path) as file:
        assert [kept.digest for kept in file.tokens()] == [digest_of(token)]


def test_a_file_that_cannot_be_read_is_told_until_it_can_be_again(path, clock):
    token = issue(path, "d1")
    states = []
    table = TokenTable(path, wall=clock, monotonic=clock, on_state=lambda *state: states.append(state))
    assert states == []
    path.rename(path.with_suffix(".away"))
    table.look()
    assert states[-1][0] == "stale"
    assert "revoked ones too" in states[-1][1]
    assert table.device_of(token) == "d1"
    path.with_suffix(".away").rename(path)
    with DeviceTokenFile(path) as file:
        file.revoke("d1", clock())
    table.look()
    assert states[-1] == ("ok", "")
    assert table.device_of(token) is None
    table.close()


def test_a_token_that_is_newer_than_the_used_one_stays(tmp_path):
    source = random.Random(1)
    first, second, third = (make_token(source.randbytes) for _ in range(3))
    with DeviceTokenFile(tmp_path / "tokens.db") as file:
        for at_s, new in ((1.0, first), (2.0, second), (3.0, third)):
            file.issue({"d1": new}, at_s, 100.0)
        # The gateway has noted the second one's use before it saw the third one.
        file.note_use({second.digest: 4.0}, [("d1", second.digest, 4.0)])
        assert [token.is_valid(5.0) for token in file.tokens("d1")] == [False, True, True]
