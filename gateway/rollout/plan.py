"""Decisions of a rollout: its waves, who is in which, and when it stops. No clock, no file, no network."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.errors import ConfigurationError

ALL: Final = "all"
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*%")
_COUNT: Final = re.compile(r"\d{1,9}")
_WHOLE: Final = 100.0


class DeviceState(StrEnum):
    """What has become of the command of one device."""

    PLANNED = "planned"
    """Nothing was sent."""
    SENDING = "sending"
    """It is being sent; after a crash nobody can say whether the service has it."""
    SENT = "sent"
    """The service has it; no result yet."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The device failed at it or rejected it, or the service refused it."""
    SILENT = "silent"
    """No result will come: it expired, or whether it was sent cannot be found out."""


OVER: Final = frozenset({DeviceState.SUCCEEDED, DeviceState.FAILED, DeviceState.SILENT})


@dataclass(frozen=True, slots=True)
class Limits:
    """When a rollout stops.

    Attributes:
        failed: share of a wave's devices that may fail, 0 to 1.
        silent: share of a wave's devices that may give no result, 0 to 1.
        timeout_s: how long a wave's results are waited for after its last command was sent, seconds.
    """

    failed: float
    silent: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Devices of one wave by what has become of their command."""

    planned: int = 0
    sending: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    silent: int = 0

    @property
    def all(self) -> int:
        """Devices of the wave."""
        return self.planned + self.sending + self.sent + self.over

    @property
    def over(self) -> int:
        """Devices whose command has ended."""
        return self.succeeded + self.failed + self.silent


def stop_reason(wave: int, counts: Counts, limits: Limits, *, is_over: bool) -> str | None:
    """Why the rollout stops in this wave: one sentence; None while it may go on.

    Args:
        wave: its number, from 1.
        counts: as they are now.
        limits: beyond which it stops.
        is_over: no more results are waited for, so that a device without one counts as silent.
    """
    silent = counts.silent + (counts.sent if is_over else 0)
    for count, share, what in ((counts.failed, limits.failed, "failed"), (silent, limits.silent, "gave no result")):
        if count > share * counts.all:
            part = _WHOLE * count / counts.all
            which = f"{count} of the {counts.all} device(s) of wave {wave} {what}"
            return f"{which} ({part:.3g} %), and {_WHOLE * share:.3g} % may"
    return None


def read_share(text: str) -> float:
    """A share such as ``5%`` as a number from 0 to 1.

    Raises:
        ConfigurationError: it is none.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None or float(found[1]) > _WHOLE:
        raise ConfigurationError([f"{text!r} is no share: write 0% to 100%"], "rollout")
    return float(found[1]) / _WHOLE


def wave_sizes(text: str, devices: int) -> list[int]:
    """How many devices each wave has, of ``1,5%,25%,all``: each entry says how many have the command after its wave.

    A wave that would have no device of its own is left out.

    Args:
        text: numbers of devices and shares of all, ascending; the last one is ``all``.
        devices: how many there are.

    Raises:
        ConfigurationError: an entry is none, they do not ascend, or the last one is not all.
    """
    entries = [entry.strip().lower() for entry in text.split(",")]
    if entries[-1] not in {ALL, "100%"}:
        raise ConfigurationError(
            [f"--waves {text!r}: the last one must be 'all', or some devices get nothing"], "rollout"
        )
    sizes: list[int] = []
    reached = 0
    before = {True: 0.0, False: 0.0}
    for entry in entries:
        wanted = _devices_of(entry, devices)
        is_count = entry.isdigit()
        if wanted < before[is_count]:
            raise ConfigurationError([f"--waves {text!r}: {entry} is less than an entry before it"], "rollout")
        before[is_count] = wanted
        upto = min(devices, math.ceil(wanted))
        if upto > reached:
            sizes.append(upto - reached)
            reached = upto
    return sizes


def _devices_of(entry: str, devices: int) -> float:
    if entry == ALL:
        return float(devices)
    if _PERCENT.fullmatch(entry):
        return read_share(entry) * devices
    if _COUNT.fullmatch(entry) and int(entry) > 0:
        return float(entry)
    raise ConfigurationError(
        [f"--waves: {entry!r} is none: write a number of devices, a share such as 5%, or all"], "rollout"
    )


def in_order(name: str, device_ids: Iterable[str]) -> list[str]:
    """The devices in the order in which they get the command: the same for one name, and another for the next.

    So the first wave is not always the same devices, and a list sorted by place or age is spread over all waves.
    """
    return sorted(set(device_ids), key=lambda each: hashlib.sha256(f"{name}\0{each}".encode()).digest())


def in_waves(ordered: Sequence[str], sizes: Sequence[int]) -> list[list[str]]:
    """The devices of each wave."""
    waves, at = [], 0
    for size in sizes:
        waves.append(list(ordered[at : at + size]))
        at += size
    return waves
