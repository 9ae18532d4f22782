"""Token files: whole at every instant, for their owner only, shared between threads and processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SignInEnded, TokensNotStored
from agent.token_store import SeededTokenFile, TokenFile
from agent.wire import paths
from agent.wire.refreshing import RefreshingBearer
from agent.wire.secret import Secret
from agent.wire.tokens import TokenSet, token_set_text
from simulator.wire.client import ServiceClient

FIRST = TokenSet(
    "http://127.0.0.1:1",
    "app",
    Secret("at-1"),
    Secret("rt-1"),
    scope="manufacturer:data",
    issuer="http://127.0.0.1:1",
    token_endpoint="/token",
    authorized_at=1_767_225_600.0,
    issued_at=1_767_225_600.0,
    expires_at=1_767_229_200.25,
)


def put(store, tokens):
    with store.exclusive():
        store.write(tokens)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestTokenFile:
    def test_what_is_written_is_read_and_nobody_else_may(self, tmp_path):
        os.umask(os.umask(0))  # whatever the umask, the file decides
        store = TokenFile(tmp_path / "token.json")
        put(store, FIRST)
        assert store.read() == FIRST
        assert mode_of(tmp_path / "token.json") == 0o600
        assert mode_of(tmp_path / "token.json.lock") == 0o600
        assert sorted(path.name for path in tmp_path.iterdir()) == ["token.json", "token.json.lock"]

    def test_a_file_that_others_could_read_is_closed_when_it_is_replaced(self, tmp_path):
        path = tmp_path / "token.json"
        path.write_text(token_set_text(FIRST))
        path.chmod(0o644)
        put(TokenFile(path), replace(FIRST, access_token=Secret("at-2")))
        assert mode_of(path) == 0o600

    def test_the_version_moves_with_the_content(self, tmp_path):
        store = TokenFile(tmp_path / "token.json")
        versions = [store.version()]
        for number in range(3):
            put(store, replace(FIRST, access_token=Secret(f"at-{number}")))
            versions.append(store.version())
        assert len(set(versions)) == 4
        assert store.version() == versions[-1]

    def test_a_symbolic_link_stays_one(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "token.json").symlink_to(tmp_path / "real" / "token.json")
        put(TokenFile(tmp_path / "token.json"), FIRST)
        assert (tmp_path / "token.json").is_symlink()
        assert TokenFile(tmp_path / "real" / "token.json").read() == FIRST

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "there is no token file"),
            ("", "no token file"),
            ("just-a-token", "no token file"),
            ("[]", "no token file"),
            ('{"access_token": "secret-canary"}', "base_url"),
            ('{"access_token": ["secret-canary"], "base_url": "x", "client_id": "y"}', "access_token"),
            ('{"access_token": "", "base_url": "http://x", "client_id": "y"}', "access_token: it is empty"),
            (
                '{"access_token": "a", "refresh_token": "b c", "base_url": "http://x", "client_id": "y"}',
                "refresh_token",
            ),
            ('{"access_token": "secret-canary", "base_url": "x", "client_id": "y"}', "base_url: it must begin"),
            ('{"access_token": "secret-canary", "base_url": "http://", "client_id": "y"}', "base_url: it must"),
            ('{"access_token": "secret-canary", "base_url": "x", "clie', "no token file"),
        ],
    )
    def test_what_is_no_token_file_asks_for_a_sign_in_and_is_not_shown(self, tmp_path, content, words):
        if content is not None:
            (tmp_path / "token.json").write_text(content)
        with pytest.raises(SignInEnded, match=words) as caught:
            TokenFile(tmp_path / "token.json").read()
        assert "fleet-simulator login --out" in str(caught.value)
        assert "canary" not in str(caught.value)

    def test_a_file_is_read_with_a_bound_and_a_directory_or_bytes_are_told(self, tmp_path):
        path = tmp_path / "token.json"
        for content, words in ((b" " * 70_000, "too large"), (b"\xff\xfe", "not text")):
            path.write_bytes(content)
            with pytest.raises(TokensNotStored, match=words):
                TokenFile(path).read()
        with pytest.raises(TokensNotStored, match="directory"):
            TokenFile(tmp_path).read()

    def test_a_hand_written_file_needs_three_members_and_takes_epoch_seconds(self, tmp_path):
        members = {"base_url": "http://a.test", "client_id": "app", "access_token": "at", "expires_at": 1_767_229_200.5}
        (tmp_path / "t").write_text(json.dumps({**members, "token_type": "Bearer", "unknown": {}}))
        found = TokenFile(tmp_path / "t").read()
        assert found.expires_at == 1_767_229_200.5
        assert found.refresh_token is None

    def test_where_nothing_can_be_written_is_told_before_and_what_was_there_stays(self, tmp_path):
        store = TokenFile(tmp_path / "token.json")
        put(store, FIRST)
        (tmp_path / ".token.json.new").mkdir()  # root may write everywhere, but not into a directory
        with store.exclusive(), pytest.raises(TokensNotStored, match="make room there"):
            store.reserve()
        with store.exclusive(), pytest.raises(TokensNotStored):
            store.write(replace(FIRST, access_token=Secret("at-2")))
        assert store.read() == FIRST

    def test_a_read_only_place_is_one_sentence(self):
        with (
            pytest.raises(TokensNotStored, match=r"/proc/token\.json\.lock cannot be locked"),
            TokenFile(Path("/proc/token.json")).exclusive(),
        ):
            pass

    def test_a_disk_without_room_is_found_by_reserving(self, tmp_path):
        program = (
            "import resource, sys\n"
            "from pathlib import Path\n"
            "from agent.errors import TokensNotStored\n"
            "from agent.token_store import TokenFile\n"
            "store = TokenFile(Path(sys.argv[1]))\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
            "with store.exclusive():\n"
            "    try:\n"
            "        store.reserve()\n"
            "    except TokensNotStored as error:\n"
            "        print(error)\n"
        )
        put(TokenFile(tmp_path / "token.json"), FIRST)
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path / "token.json"], capture_output=True, text=True, check=True
        )
        assert "File too large" in done.stdout
        assert TokenFile(tmp_path / "token.json").read() == FIRST

    def test_a_lock_that_stays_held_is_given_up_for_now(self, tmp_path):
        times = iter(range(100))
        store = TokenFile(tmp_path / "token.json", lock_wait_s=2, monotonic=lambda: next(times))
        other = TokenFile(tmp_path / "token.json")
        with other.exclusive(), pytest.raises(TokensNotStored, match="another process"), store.exclusive():
            pass
        with store.exclusive():
            pass

    def test_readers_find_one_whole_set_while_it_is_replaced(self, tmp_path):
        store = TokenFile(tmp_path / "token.json")
        put(store, FIRST)
        done = threading.Event()

        def read_all() -> int:
            count = 0
            while not done.is_set():
                assert store.read().access_token.reveal().startswith("at-")
                count += 1
            return count

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read_all) for _ in range(2)]
            for number in range(50):
                put(store, replace(FIRST, access_token=Secret("at-" + "x" * (number * 50))))
            done.set()
            assert all(reader.result() for reader in readers)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_root_leaves_the_file_to_its_owner(self, tmp_path):
        os.chown(tmp_path, 1234, 1234)
        store = TokenFile(tmp_path / "token.json")
        put(store, FIRST)
        for name in ("token.json", "token.json.lock"):
            assert (tmp_path / name).stat().st_uid == 1234


class TestSeededTokenFile:
    @pytest.fixture
    def seed(self, tmp_path):
        (tmp_path / "seed").mkdir()
        return TokenFile(tmp_path / "seed" / "token.json")

    @pytest.fixture
    def own(self, tmp_path):
        return TokenFile(tmp_path / "token.json")

    def renew(self, store, name="2"):
        old = store.read()
        put(store, replace(old, access_token=Secret(f"at-{name}"), refresh_token=Secret(f"rt-{name}")))

    def test_the_renewed_pair_goes_beside_and_counts_from_then_on(self, seed, own):
        put(seed, FIRST)
        store = SeededTokenFile(seed, own)
        assert store.read().access_token == Secret("at-1")
        self.renew(store)
        assert seed.read() == FIRST
        assert store.read().access_token == own.read().access_token == Secret("at-2")
        self.renew(store, "3")
        assert SeededTokenFile(seed, own).read().access_token == Secret("at-3")

    def test_another_set_handed_over_is_a_new_sign_in_whatever_the_clocks_say(self, seed, own):
        put(seed, FIRST)
        store = SeededTokenFile(seed, own)
        self.renew(store)
        before = store.version()
        for authorized_at in (None, FIRST.authorized_at, FIRST.authorized_at + 60):
            new = replace(FIRST, access_token=Secret("at-9"), refresh_token=Secret("rt-9"), authorized_at=authorized_at)
            put(seed, new)
            assert store.version() != before
            assert store.read().access_token == Secret("at-9")
        self.renew(store, "10")
        assert store.read().access_token == Secret("at-10")

    def test_a_later_sign_in_straight_into_the_programs_own_file_wins(self, seed, own):
        put(seed, FIRST)
        store = SeededTokenFile(seed, own)
        self.renew(store)
        put(own, replace(FIRST, access_token=Secret("at-7"), authorized_at=FIRST.authorized_at + 60))
        self.renew(store, "7")
        assert store.read().access_token == Secret("at-7")

    def test_what_was_handed_over_may_be_taken_away(self, seed, own, tmp_path):
        put(seed, FIRST)
        store = SeededTokenFile(seed, own)
        self.renew(store)
        (tmp_path / "seed" / "token.json").unlink()
        assert store.read().access_token == Secret("at-2")

    def test_nothing_at_all_names_the_file_to_sign_in_to(self, seed, own):
        with pytest.raises(SignInEnded, match=seed.name):
            SeededTokenFile(seed, own).read()


# --- several processes ------------------------------------------------------------------------------------------


class Service(ThreadingHTTPServer):
    """Rotates, punishes reuse, and looks into the token file when a new token arrives."""

    daemon_threads = False

    def __init__(self, path: Path):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.path = path
        self.guard = threading.Lock()
        self.number = 1
        self.refreshes = 0
        self.is_ended = False
        self.too_early: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Service

    def log_message(self, *_: Any) -> None:
        pass

    def say(self, status: int, body: dict[str, Any], **headers: str) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        with self.server.guard:
            good = token == f"at-{self.server.number}" and self.server.number > 1
            if good and json.loads(self.server.path.read_text())["access_token"] != token:
                self.server.too_early.append(token)
        if good:
            self.say(200, {"extensions": []})
        else:
            self.say(401, {"error": "invalid_token"}, WWW_Authenticate='Bearer error="invalid_token"')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == paths.OAUTH_TOKEN
        with self.server.guard:
            self.server.refreshes += 1
            if body["refresh_token"] != f"rt-{self.server.number}":
                self.server.is_ended = True
                self.say(400, {"error": "invalid_grant"})
                return
            self.server.number += 1
            number = self.server.number
        pair = {"access_token": f"at-{number}", "refresh_token": f"rt-{number}"}
        self.say(200, {**pair, "token_type": "Bearer", "expires_in": 3600})


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "token.json"


@pytest.fixture
def service(path) -> Iterator[Service]:
    server = Service(path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    now = time.time()
    put(TokenFile(path), replace(FIRST, base_url=server.url, token_endpoint="", issued_at=now, expires_at=now + 3600))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


PROGRAM = """
import os, signal, sys
from pathlib import Path
from agent.token_store import TokenFile
from simulator.wire.client import ServiceClient
from agent.wire.refreshing import RefreshingBearer

class DiesAfterWriting(TokenFile):
    def write(self, tokens):
        super().write(tokens)
        os.kill(os.getpid(), signal.SIGKILL)

kind = DiesAfterWriting if sys.argv[2] == "dies" else TokenFile
bearer = RefreshingBearer(kind(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
with ServiceClient(bearer.base_url, bearer) as client:
    client.discover()
print("done", flush=True)
"""


def start(path: Path, how: str = "lives") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_several_processes_that_are_refused_at_once_refresh_once(service, path):
    programs = [start(path) for _ in range(4)]
    try:
        for program in programs:
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            program.stdin.write("go\n")
            program.stdin.flush()
        assert [program.stdout.readline() for program in programs] == ["done\n"] * 4
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert service.refreshes == 1
    assert not service.is_ended
    assert service.too_early == []
    assert json.loads(path.read_text())["refresh_token"] == "rt-2"


def test_a_process_that_is_killed_between_writing_and_using_has_lost_nothing(service, path):
    program = start(path, "dies")
    output, _ = program.communicate("go\n", timeout=120)
    assert (program.returncode, output) == (-signal.SIGKILL, "ready\n")
    assert service.refreshes == 1
    bearer = RefreshingBearer(TokenFile(path))
    with ServiceClient(bearer.base_url, bearer) as client:
        client.discover()
    assert service.refreshes == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["token.json", "token.json.lock"]


def test_a_sign_in_by_another_process_is_picked_up_without_a_restart(service, path):
    service.is_ended = True
    bearer = RefreshingBearer(TokenFile(path))
    with ServiceClient(bearer.base_url, bearer) as client:
        put(TokenFile(path), replace(TokenFile(path).read(), refresh_token=Secret("rt-0")))
        with pytest.raises(SignInEnded):
            client.discover()
        service.number = 5
        put(
            TokenFile(path),
            replace(TokenFile(path).read(), access_token=Secret("at-5"), refresh_token=Secret("rt-5")),
        )
        client.discover()
    assert service.refreshes == 1
