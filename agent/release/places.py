"""Where everything of an update is, and the limits of a trial: both are root's to change."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.release.manifest import ReleaseRefused

SERVICE: Final = "device-agent.service"
TRIAL_UNIT: Final = "device-agent-trial.service"
_DAY_S: Final = 86_400.0
_MOST_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Places:
    """The files of an update.

    Attributes:
        root: where the file system of this device begins.
    """

    root: Path = Path("/")

    @property
    def owner_id(self) -> int:
        """The user who must own keys and configuration: root, whatever number a sandbox shows for it."""
        return self.root.stat().st_uid

    @property
    def base(self) -> Path:
        """The libraries that came in the package."""
        return self.root / "usr/lib/device-agent"

    @property
    def releases(self) -> Path:
        """One folder for each release, the state, and the link ``current``."""
        return self.root / "var/lib/device-agent-releases"

    @property
    def current(self) -> Path:
        """The link to the release that runs; without it the package runs."""
        return self.releases / "current"

    @property
    def keys(self) -> Path:
        """The public keys of makers."""
        return self.root / "etc/device-agent/release-keys"

    @property
    def configuration(self) -> Path:
        """Root's limits of a trial; the file need not be there."""
        return self.root / "etc/device-agent-update.toml"

    @property
    def download(self) -> Path:
        """The agent's folder for a release that a command brings."""
        return self.root / "var/lib/device-agent/update"

    @property
    def runtime(self) -> Path:
        """The agent's runtime directory, with its status."""
        return self.root / "run/device-agent"

    @property
    def request(self) -> Path:
        """The agent's request to have it installed, which the path unit waits for."""
        return self.runtime / "update"

    @property
    def systemctl(self) -> Path:
        """The service manager's program."""
        return self.root / "usr/bin/systemctl"

    @property
    def installer(self) -> Path:
        """The program that installs a release; only the package has it."""
        return self.root / "usr/libexec/device-agent-update"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a trial.

    Attributes:
        probation_s: how long a new release must stay well, seconds.
        deadline_s: within so long it must have done so, seconds, counted anew after a boot.
        max_starts: so many starts of the service may begin with it.
    """

    probation_s: float = 120.0
    deadline_s: float = 600.0
    max_starts: int = 3


def read_limits(places: Places) -> Limits:
    """The limits in root's file; the defaults where there is none.

    Raises:
        ReleaseRefused: ``misconfigured``, with what to mend.
    """
    where = places.configuration
    found = _read_toml(where, places.owner_id) if os.path.lexists(where) else {}
    names = {"probation_s", "deadline_s", "max_starts"}
    if set(found) - names:
        raise ReleaseRefused("misconfigured", f"{where}: there are {', '.join(sorted(names))}, and nothing else")
    limits = Limits(**found)
    times = (limits.probation_s, limits.deadline_s)
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and 1 <= each <= _DAY_S for each in times):
        raise ReleaseRefused("misconfigured", f"{where}: a time is a number of seconds, 1 to {_DAY_S:g}")
    if limits.deadline_s < 2 * limits.probation_s:
        raise ReleaseRefused("misconfigured", f"{where}: make deadline_s at least twice probation_s")
    if type(limits.max_starts) is not int or not 1 <= limits.max_starts <= 20:
        raise ReleaseRefused("misconfigured", f"{where}: max_starts is a number, 1 to 20")
    return limits


def _read_toml(path: Path, owner_id: int) -> dict[str, Any]:
    """A file that only its owner can have written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ReleaseRefused("misconfigured", f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner_id or found.st_mode & 0o022:
            raise ReleaseRefused("misconfigured", f"{path} must be a file that root owns and nobody else may write")
        data = file.read(_MOST_BYTES)
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise ReleaseRefused("misconfigured", f"{path}: {error}") from error
