"""A token that another program renews in its file (configuration ``auth.token_file``)."""

from __future__ import annotations

import logging
from pathlib import Path

from agent.wire.secret import Secret, never_show

_log = logging.getLogger(__name__)


class RenewedToken:
    """What the file holds now.

    It is read again when its time of change moves or another file takes its place; unreadable, the last token stays.

    Args:
        path: the file.
        token: what it held at the start.
    """

    def __init__(self, path: Path, token: Secret) -> None:
        self._path = path
        self._token = token
        self._version = self._read_version()

    def current(self) -> Secret:
        """The token as it is now."""
        version = self._read_version()
        if version != self._version:
            self._version = version
            self._read_again()
        return self._token

    def _read_version(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read_again(self) -> None:
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("auth=stale token_file %s cannot be read, so the last token stays: %s", self._path, error)
            return
        if text and text.isprintable() and " " not in text and not text.startswith("{"):
            never_show(text)
            self._token = Secret(text)
        else:
            _log.warning("auth=stale token_file %s holds no token alone, so the last one stays", self._path)
