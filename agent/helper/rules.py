"""The actions that are allowed on this device: a file that only root can write, and the decision by it."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.helper.exchange import HelperRequest

CONFIGURATION: Final = Path("/etc/device-agent-helper.toml")

ACTIONS: Final[Mapping[str, Sequence[str]]] = {
    "reboot": ("/usr/bin/systemctl", "--no-block", "--no-wall", "reboot"),
    "update": ("/usr/bin/systemctl", "--no-block", "start", "device-agent-update.service"),
}
"""Every action of the helper; the configuration says which of them are allowed."""

_NEEDS_UPTIME: Final = frozenset({"reboot"})

MAX_AGE_S: Final = 60.0
MIN_UPTIME_S: Final = 300.0
_DAY_S: Final = 86_400
_MAX_BYTES: Final = 65_536


class RequestDenied(Exception):
    """The request is not acted upon: a code and a sentence that says what to do about it."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True, slots=True)
class Rules:
    """The actions that the configuration allows.

    Attributes:
        allow: names out of :data:`ACTIONS`.
        min_uptime_s: no reboot while the system has been up for less, seconds. A command that comes back after
            each boot restarts the device once in so many seconds at most, which leaves time to reach it.
    """

    allow: frozenset[str] = frozenset()
    min_uptime_s: float = MIN_UPTIME_S


def judge(request: HelperRequest, rules: Rules, *, asked_ago_s: float, uptime_s: float) -> Sequence[str]:
    """The program and arguments that do what is asked.

    Args:
        request: well formed, from the agent's user.
        rules: of this device.
        asked_ago_s: how long ago it was asked; negative or longer than the system has been up means before this boot.
        uptime_s: how long the system has been up.

    Raises:
        RequestDenied: ``not_allowed``, ``stale`` or ``too_soon``.
    """
    if request.action not in ACTIONS or request.action not in rules.allow:
        allowed = ", ".join(sorted(rules.allow)) or "nothing"
        raise RequestDenied(
            "not_allowed", f"this device allows {allowed}, not {request.action[:40]!r}: see {CONFIGURATION}"
        )
    if not 0 <= asked_ago_s <= min(MAX_AGE_S, uptime_s):
        raise RequestDenied("stale", f"it was not asked within the last {MAX_AGE_S:g} s of this boot")
    if request.action in _NEEDS_UPTIME and uptime_s < rules.min_uptime_s:
        limit = f"min_uptime_s is {rules.min_uptime_s:g}"
        raise RequestDenied("too_soon", f"the system has been up for {uptime_s:.0f} s and {limit}: send it again later")
    return ACTIONS[request.action]


def read_rules(path: Path, owner_id: int = 0) -> Rules:
    """The rules of this device.

    Args:
        path: a TOML file.
        owner_id: the user who must own it.

    Raises:
        RequestDenied: ``not_configured``, or ``misconfigured`` with what to mend. Nothing is allowed then.
    """
    try:
        return _rules_of(read_toml(path, owner_id))
    except ValueError as error:
        raise RequestDenied("misconfigured", f"{path}: {error}") from error


def read_toml(path: Path, owner_id: int) -> dict[str, object]:
    """A TOML file that only its owner can have written.

    Args:
        path: the file.
        owner_id: the user who must own it.

    Raises:
        RequestDenied: ``not_configured``, or ``misconfigured`` with what to mend.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise RequestDenied("not_configured", f"there is no {path}, so nothing is allowed") from error
    except OSError as error:
        raise RequestDenied("misconfigured", f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner_id or found.st_mode & 0o022:
            raise RequestDenied("misconfigured", f"{path} must be a file that root owns and nobody else may write")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise RequestDenied("misconfigured", f"{path} is larger than {_MAX_BYTES} bytes")
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise RequestDenied("misconfigured", f"{path}: {error}") from error


def _rules_of(keys: dict[str, object]) -> Rules:
    unknown = ", ".join(sorted(keys.keys() - {"allow", "min_uptime_s", "update"}))
    if unknown:
        raise ValueError(f"unknown key {unknown}: there are allow, min_uptime_s and [update]")
    allow = keys.get("allow", [])
    if not isinstance(allow, list) or not all(name in ACTIONS for name in allow):
        raise ValueError(f"allow must be a list out of: {', '.join(ACTIONS)}")
    uptime_s = keys.get("min_uptime_s", MIN_UPTIME_S)
    if isinstance(uptime_s, bool) or not isinstance(uptime_s, int | float) or not 0 <= uptime_s <= _DAY_S:
        raise ValueError(f"min_uptime_s must be a number of seconds, 0 to {_DAY_S}")
    return Rules(frozenset(allow), float(uptime_s))
