"""A token that another program renews in its file (configuration ``auth.token_file``)."""

from __future__ import annotations

import logging
from pathlib import Path

from agent.wire.secret import Secret, never_show

_log = logging.getLogger(__name__)


class RenewedToken:
    """What the file holds now; the last token while it cannot be read or holds no token alone.

    Args:
        path: the file, read anew for each use.
        token: what it held at the start.
    """

    def __init__(self, path: Path, token: Secret) -> None:
        self._path = path
        self._token = token
        self._fault = ""

    def current(self) -> Secret:
        """The token as it is now."""
        fault = ""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            fault = f"cannot be read: {error}"
        else:
            if not text or not text.isprintable() or " " in text or text.startswith("{"):
                fault = "holds no token alone"
            elif text != self._token.reveal():
                never_show(text)
                self._token = Secret(text)
        if fault and fault != self._fault:
            _log.warning("auth=stale token_file %s %s; the last token stays", self._path, fault)
        self._fault = fault
        return self._token
