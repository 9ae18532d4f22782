"""Sessions in a file of the data folder, so that who is signed in stays so when the service is started again.

It holds hashes of random values: whoever reads it cannot sign in with it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.whole_files import write_whole

log = logging.getLogger(__name__)

NAME: Final = "console-sessions.json"
_PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session without what it is opened with.

    Attributes:
        host: the ``Host`` that it is good for.
        ends_s: when it ends, seconds since the epoch.
    """

    host: str
    ends_s: float


class SessionFile:
    """The file with the console's sessions.

    Args:
        folder: of the service's data.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> Iterable[tuple[str, StoredSession]]:
        """Hash of a session's value -> the session, the oldest first. A file that cannot be read holds none."""
        try:
            return [_read_one(entry) for entry in json.loads(self._path.read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as exc:
            log.warning("%s cannot be read, so everybody has to open the console anew: %s", self._path, exc)
            return []

    def write(self, sessions: Mapping[str, StoredSession]) -> None:
        """Keep them. What cannot be written is logged, and lost at the end of the service."""
        entries = [{"hash": key, "host": one.host, "ends_s": one.ends_s} for key, one in sessions.items()]
        try:
            write_whole(self._path, json.dumps(entries), mode=_PRIVATE)
        except OSError as exc:
            log.warning("sessions of the console will not outlive the service: %s: %s", self._path, exc)


def _read_one(entry: Mapping[str, Any]) -> tuple[str, StoredSession]:
    return str(entry["hash"]), StoredSession(str(entry["host"]), float(entry["ends_s"]))
