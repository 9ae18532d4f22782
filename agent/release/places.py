"""Where everything of an update is, and the limits of a trial: both are root's to change."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.helper.rules import RequestDenied, read_toml
from agent.release.manifest import ReleaseRefused

SERVICE: Final = "device-agent.service"
TRIAL_UNIT: Final = "device-agent-trial.service"
_DAY_S: Final = 86_400.0


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
        """Root's configuration of the helper, with the limits of a trial."""
        return self.root / "etc/device-agent-helper.toml"

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
        """The agent's request to the helper."""
        return self.runtime / "request.json"

    @property
    def answer(self) -> Path:
        """The helper's answer to it."""
        return self.root / "run/device-agent-helper/answer.json"

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
    """The limits in the section ``update`` of root's configuration; the defaults where it has none.

    Raises:
        ReleaseRefused: ``misconfigured``, with what to mend.
    """
    if not os.path.lexists(places.configuration):
        return Limits()
    try:
        found = read_toml(places.configuration, places.owner_id).get("update", {})
    except RequestDenied as error:
        raise ReleaseRefused(error.code, error.message) from error
    where = f"[update] in {places.configuration}"
    names = {"probation_s", "deadline_s", "max_starts"}
    if not isinstance(found, dict) or set(found) - names:
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
