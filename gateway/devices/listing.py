"""The devices and their tokens, as ``gateway devices list`` shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent.wire.times import to_rfc3339
from gateway.devices.token_file import StoredToken


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device as ``device-gateway devices list`` shows it.

    Attributes:
        state: of its newest token.
        last_used_at: of any of its tokens, epoch seconds.
        old_until: until when an older token is good; None when none is.
    """

    device_id: str
    state: str
    issued_at: float
    last_used_at: float | None
    old_until: float | None

    def row(self) -> tuple[str, ...]:
        """The row of the table."""
        shown = (_shown(self.issued_at), _shown(self.last_used_at), _shown(self.old_until))
        return (self.device_id, self.state, *shown)

    def to_json(self) -> dict[str, Any]:
        """The members that ``--json`` prints."""
        return {
            "device_id": self.device_id,
            "state": self.state,
            "issued_at": to_rfc3339(self.issued_at),
            "last_used_at": None if self.last_used_at is None else to_rfc3339(self.last_used_at),
            "old_token_until": None if self.old_until is None else to_rfc3339(self.old_until),
        }


def listed(tokens: Iterable[StoredToken], now_s: float, *, show_all: bool) -> list[ListedDevice]:
    """One entry for each device.

    Args:
        tokens: by device, oldest first.
        now_s: epoch seconds.
        show_all: also devices without a valid token.
    """
    by_device: dict[str, list[StoredToken]] = {}
    for token in tokens:
        by_device.setdefault(token.device_id, []).append(token)
    found = []
    for device_id, own in by_device.items():
        newest = own[-1]
        if not show_all and not any(token.is_valid(now_s) for token in own):
            continue
        used = [token.last_used_at for token in own if token.last_used_at is not None]
        old = [token.ends_at for token in own[:-1] if token.is_valid(now_s) and token.ends_at is not None]
        entry = ListedDevice(
            device_id,
            newest.state(now_s),
            newest.created_at,
            max(used, default=None),
            max(old, default=None),
        )
        found.append(entry)
    return found


def _shown(at_s: float | None) -> str:
    return "-" if at_s is None else f"{to_rfc3339(at_s)[:19]}Z"
