"""The device tokens as the running gateway knows them: in memory, and never older than half a second.

A thread looks at the file for changes and takes over what is new, so that a token that was revoked a moment ago is
refused without a restart and a check costs no disk. The same thread writes down when tokens were used.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from agent.runtime.failure_log import FailureLog
from agent.runtime.retry_policy import HOURLY_S
from agent.threads import OnCrash, WatchedThread, only_logged
from gateway.devices.token_file import DeviceTokenFile, StoredToken
from gateway.devices.tokens import digest_of

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
_NOTE_EVERY_S: Final = 60.0
_OK: Final = "ok"


class TokenTable:
    """A :class:`~gateway.ports.TokenCheck` on the file of tokens.

    Args:
        path: the file; it is made where there is none.
        wall: epoch seconds.
        monotonic: seconds on the monotonic clock.
        on_state: called with a state and a sentence when that changes: ``stale`` while the file cannot be read, so that
            nothing that is revoked counts; ``ok`` afterwards.
        on_crash: see :class:`~agent.threads.WatchedThread`.

    Raises:
        ConfigurationError: the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_state: Callable[[str, str], None] = lambda _state, _detail: None,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._path = path
        self._wall = wall
        self._monotonic = monotonic
        self._on_state = on_state
        self._on_crash = on_crash
        self._failure_log = FailureLog(_log, monotonic, HOURLY_S)
        self._state = _OK
        # Digest -> device of every token that is good; device -> its newest. A hundred thousand devices fit, since a
        # device without a rotation under way costs two entries and nothing else.
        self._devices: dict[bytes, str] = {}
        self._newest: dict[str, tuple[int, bytes]] = {}
        # Tokens that are good for a while only, and whose newest one ends them when it is used.
        self._ends: dict[bytes, float] = {}
        self._older: dict[str, set[bytes]] = {}
        self._used: dict[bytes, float] = {}
        self._ended: list[tuple[str, bytes, float]] = []
        self._revision = 0
        # Two locks, so that no check ever waits for the disk: the first guards what is above, the second the file. Who
        # needs both takes the file's first.
        self._lock = threading.Lock()
        self._file_lock = threading.Lock()
        self._file: DeviceTokenFile | None = None
        self._file_id: tuple[int, int] = (0, 0)
        self._version = -1
        self._noted_at_s = monotonic()
        self._stop = threading.Event()
        self._thread: WatchedThread | None = None
        self.reload()

    def start(self) -> None:
        """Begin to look for changes."""
        self._thread = WatchedThread(self._run, name="gateway-tokens", on_crash=self._on_crash)
        self._thread.start()

    def close(self) -> None:
        """Write down what is not yet, and give the file back."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._note_use()
        with self._file_lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def device_of(self, token: str) -> str | None:
        """The device that a valid token belongs to (HTTP names it nowhere else on ``POST /sensor-data``).

        The time it takes gives nothing away of the tokens that exist: what is compared is the SHA-256 of what came,
        which a caller cannot steer towards another one.
        """
        digest = digest_of(token)
        device_id = self._devices.get(digest)
        if device_id is None:
            return None
        now_s = self._wall()
        if device_id in self._older:
            ends_at = self._ends.get(digest)
            if ends_at is None:
                self._end_older(device_id, digest, now_s)
            elif now_s >= ends_at:
                return None
        self._used[digest] = now_s
        return device_id

    def device_ids(self) -> Collection[str]:
        """The devices with at least one valid token: whom the gateway serves and polls for."""
        with self._lock:
            self._drop_ended()
            return frozenset(self._newest)

    def reload(self) -> None:
        """Take over what changed now; see :meth:`gateway.ports.TokenCheck.reload`."""
        try:
            self._take_over()
        except (sqlite3.Error, OSError) as error:
            raise ConfigurationError([f"{self._path} cannot be read: {_one_line(error)}"], "device tokens") from None
        self._put_state(_OK, "")

    def look(self) -> None:
        """Take over what changed, and write down what was used; the thread calls it every half second."""
        try:
            self._take_over()
        except (ConfigurationError, sqlite3.Error, OSError) as error:
            text = f"{self._path} cannot be read, so the tokens from before stay in force, revoked ones too"
            text += f": {_one_line(error)}"
            self._failure_log.report("read", f"tokens=stale {text}", level=logging.ERROR)
            self._put_state("stale", text)
        else:
            self._failure_log.recovered("read", "tokens=fresh the file of the tokens can be read again")
            self._put_state(_OK, "")
            if self._ended or self._monotonic() - self._noted_at_s >= _NOTE_EVERY_S:
                self._note_use()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look()

    def _take_over(self) -> None:
        with self._file_lock:
            if self._file is None or _identity(self._path) != self._file_id:
                self._open_anew()
            version = self._file.data_version() if self._file is not None else -1
            if self._file is not None and version != self._version:
                self._version = version
                changed = list(self._file.changed_since(self._revision))
                self._put_all(changed)

    def _open_anew(self) -> None:
        """Another file is there now: at the start, or after a backup was put back."""
        fresh = DeviceTokenFile(self._path)
        try:
            version, tokens = fresh.data_version(), list(fresh.tokens())
        except BaseException:
            fresh.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file, self._file_id, self._version = fresh, _identity(self._path), version
        self._revision = 0
        self._put_whole(tokens)

    def _put_whole(self, tokens: list[StoredToken]) -> None:
        """All rows of the file: what is in none of them is known no more."""
        known = {token.digest for token in tokens}
        with self._lock:
            for digest in [digest for digest in self._devices if digest not in known]:
                self._drop(digest)
        self._put_all(tokens)

    def _put_all(self, tokens: list[StoredToken]) -> None:
        now_s = self._wall()
        with self._lock:
            for token in tokens:
                self._revision = max(self._revision, token.revision)
                self._put(token, now_s)
            self._drop_ended()

    def _put(self, token: StoredToken, now_s: float) -> None:
        if not token.is_valid(now_s):
            self._drop(token.digest)
            return
        device_id = token.device_id
        number, _ = self._newest.get(device_id, (0, b""))
        if token.number > number:
            self._newest[device_id] = (token.number, token.digest)
        self._devices[token.digest] = device_id
        if token.ends_at is not None:
            self._ends[token.digest] = token.ends_at
            self._older.setdefault(device_id, set()).add(token.digest)

    def _drop(self, digest: bytes) -> None:
        device_id = self._devices.pop(digest, None)
        self._ends.pop(digest, None)
        if device_id is None:
            return
        if self._newest.get(device_id, (0, b""))[1] == digest:
            del self._newest[device_id]
        older = self._older.get(device_id, set())
        older.discard(digest)
        if not older:
            self._older.pop(device_id, None)

    def _drop_ended(self) -> None:
        now_s = self._wall()
        for digest in [digest for digest, ends_at in self._ends.items() if ends_at <= now_s]:
            self._drop(digest)

    def _end_older(self, device_id: str, newest: bytes, now_s: float) -> None:
        with self._lock:
            for digest in list(self._older.get(device_id, ())):
                self._drop(digest)
            self._ended.append((device_id, newest, now_s))
        _log.info("tokens=rotated device %s uses its new token, so the old one ended", device_id)

    def _put_state(self, state: str, detail: str) -> None:
        if state != _OK or state != self._state:
            self._on_state(state, detail)
        self._state = state

    def _note_use(self) -> None:
        self._noted_at_s = self._monotonic()
        with self._file_lock:
            if self._file is None or not (self._used or self._ended):
                return
            used, self._used = self._used, {}
            with self._lock:
                ended, self._ended = self._ended, []
            try:
                self._file.note_use(dict(used), ended)  # a copy: a check that began before may still write into it
            except sqlite3.Error as error:
                # When a token was used last is worth no second try; that one ended is.
                with self._lock:
                    self._ended = ended + self._ended
                text = f"tokens=unwritten {self._path} cannot be written: {_one_line(error)}"
                self._failure_log.report("write", text)


def _identity(path: Path) -> tuple[int, int]:
    """Which file this is.

    Raises:
        OSError: it cannot be found.
    """
    status = path.stat()
    return (status.st_dev, status.st_ino)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
