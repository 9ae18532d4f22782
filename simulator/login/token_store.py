"""Token sets in files, shared by whatever on this machine holds them: the agent, ``fleet-simulator login``, yours.

A file is replaced, never changed: whoever reads it at any moment, or after a power cut, finds one whole set. Writers
take a lock on a file beside it (``.lock``), which the kernel frees however its holder ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agent.errors import InvalidMessage
from agent.wire.secret import MAX_TOKEN_FILE_BYTES
from simulator.login.errors import SignInEnded, TokensNotStored
from simulator.login.tokens import TokenSet, parse_token_set, token_set_text

_MODE: Final = 0o600
_LOCK_WAIT_S: Final = 30.0
_BETWEEN_S: Final = 0.02
_RESERVED_BYTES: Final = 16 * 1024


class TokenFile:
    """A token file: ``fleet-simulator login`` writes it, and who renews the tokens writes it again.

    Implements :class:`simulator.login.token_keeper.TokenStore`.

    Args:
        path: the file; a symbolic link stays one. Its directory must be writable for whoever renews.
        lock_wait_s: how long another process may renew before this one gives up for now.
        monotonic: the clock for that.
    """

    def __init__(
        self, path: Path, *, lock_wait_s: float = _LOCK_WAIT_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._shown = path
        self._path = Path(os.path.realpath(path))
        self._new = self._path.with_name(f".{self._path.name}.new")
        self._lock_wait_s = lock_wait_s
        self._monotonic = monotonic

    @property
    def name(self) -> str:
        """The path of the token file."""
        return str(self._shown)

    def exists(self) -> bool:
        """Whether there is a file by now."""
        return self._path.exists()

    def version(self) -> object:
        """What the file system says about the file; None without one."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> TokenSet:
        """What is kept now. See :meth:`simulator.login.token_keeper.TokenStore.read`."""
        try:
            text = read_text(self._path)
        except FileNotFoundError:
            advice = f"sign in: fleet-simulator login --out {self.name}"
            raise SignInEnded(f"there is no token file {self.name}: {advice}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise TokensNotStored(f"the token file {self.name} cannot be read: {_reason(error)}") from None
        try:
            return parse_token_set(text)
        except InvalidMessage as error:
            advice = f"sign in again: fleet-simulator login --out {self.name}"
            raise SignInEnded(f"{self.name} is no token file ({error}); {advice}") from None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep every other process out meanwhile. See :meth:`simulator.login.token_keeper.TokenStore.exclusive`."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        except OSError as error:
            raise TokensNotStored(f"{lock} cannot be locked: {_reason(error)}; nothing was renewed") from None
        try:
            self._chown_to_owner(fd)
            self._wait_for(fd, lock)
            yield
        finally:
            with contextlib.suppress(OSError):
                self._new.unlink(missing_ok=True)
            os.close(fd)

    def reserve(self) -> None:
        """Write as much as the new file may need beside it: a full or read-only disk shows before anything is asked."""
        self._put(b" " * _RESERVED_BYTES)

    def write(self, tokens: TokenSet) -> None:
        """Replace what is kept; on return it survives a power cut. Called within :meth:`exclusive`."""
        self._put(token_set_text(tokens).encode())
        try:
            self._new.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise self._not_written(error) from None

    def _put(self, content: bytes) -> None:
        try:
            fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
            try:
                os.fchmod(fd, _MODE)
                self._chown_to_owner(fd)
                written = 0
                while written < len(content):
                    written += os.pwrite(fd, content[written:], written)
                os.ftruncate(fd, len(content))
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._not_written(error) from None

    def _chown_to_owner(self, fd: int) -> None:
        """Root, who checks by hand, must not lock the agent's own user out of its file."""
        if os.geteuid() != 0:
            return
        with contextlib.suppress(OSError):  # a root without that right, in a container
            status = (self._path if self._path.exists() else self._path.parent).stat()
            os.fchown(fd, status.st_uid, status.st_gid)

    def _wait_for(self, fd: int, lock: Path) -> None:
        until = self._monotonic() + self._lock_wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._monotonic() >= until:
                    text = f"another process has held {lock} for {self._lock_wait_s:g} s; nothing was renewed"
                    raise TokensNotStored(text) from None
                threading.Event().wait(_BETWEEN_S)
            except OSError as error:
                raise TokensNotStored(f"{lock} cannot be locked: {_reason(error)}; nothing was renewed") from None
            else:
                return

    def _not_written(self, error: OSError) -> TokensNotStored:
        return TokensNotStored(
            f"the tokens cannot be written to {self.name} ({_reason(error)}), and tokens that are not on the disk are "
            "not used: make room there, or make the directory writable for this user"
        )


def read_text(path: Path) -> str:
    """A token file's text, bounded.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
    """
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(None, "it is no regular file")
        raw = file.read(MAX_TOKEN_FILE_BYTES + 1)
    if len(raw) > MAX_TOKEN_FILE_BYTES:
        raise OSError(None, "it is too large for a token file")
    return raw.decode("utf-8")


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or "the system refuses") if isinstance(error, OSError) else "it is not text"
