"""The commands of the demo: sent, remembered with the end they must come to, and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from agent.wire.command_states import FINAL_STATES
from agent.wire.commands import CommandRecord
from agent.wire.sending import SendCommand
from simulator.demo.proofs import ExpectedCommand, StoredCommand
from simulator.fleet.runner import DeviceIdentity
from simulator.wire.client import ServiceClient

_LOOK_S: Final = 0.1
NEVER: Final = frozenset({0})
ONCE: Final = frozenset({1})


@dataclass(frozen=True, slots=True)
class Order:
    """One kind of command.

    Attributes:
        title: for a person.
        status, error, runs: as in :class:`~simulator.demo.proofs.ExpectedCommand`.
        ttl_s: how long the service keeps it for its device; None leaves that to the service.
    """

    title: str
    payload: dict[str, Any]
    status: str = "succeeded"
    error: str | None = None
    runs: frozenset[int] | None = ONCE
    ttl_s: int | None = None


class CommandSender:
    """Sends commands, and keeps how each must end.

    Args:
        client: who they are sent through.
    """

    def __init__(self, client: ServiceClient) -> None:
        self._client = client
        self.sent: list[ExpectedCommand] = []

    def send(self, device: DeviceIdentity, order: Order) -> str:
        """Send one; the service's id of it."""
        record = self._client.send_command(
            SendCommand(device_id=device.device_id, command_payload=order.payload, ttl_seconds=order.ttl_s),
        )
        command_id = record.stable_id()
        whose = (command_id, device.name, device.device_id)
        self.sent.append(
            ExpectedCommand(*whose, order.title, order.status, order.error, order.runs, payload=order.payload)
        )
        return command_id

    def wait(self, device_ids: Iterable[str], timeout_s: float, on_look: Callable[[int, int], None]) -> int:
        """Wait until everything that was sent to these devices has ended; how many have not, in time.

        Args:
            device_ids: the devices.
            timeout_s: how long.
            on_look: called with how many have ended, and of how many.
        """
        deadline_s = time.monotonic() + timeout_s
        open_at = {name: self._ids_of(name) for name in device_ids}
        total = sum(map(len, open_at.values()))
        while True:
            for name in [name for name, ids in open_at.items() if ids]:
                ended = {
                    record.id
                    for record in self._client.device_commands(name).records
                    if record.status in FINAL_STATES and record.id
                }
                open_at[name] -= ended
            left = sum(map(len, open_at.values()))
            on_look(total - left, total)
            if not left or time.monotonic() > deadline_s:
                return left
            time.sleep(_LOOK_S)

    def status_of(self, device_id: str, command_id: str) -> str | None:
        """The state that the service has a command in; None when it does not list it."""
        return next(
            (record.status for record in self._client.device_commands(device_id).records if record.id == command_id),
            None,
        )

    def _ids_of(self, device_id: str) -> set[str]:
        return {order.id for order in self.sent if order.device_id == device_id}


def stored_command(record: CommandRecord, device_id: str) -> StoredCommand:
    """A listed record as the proofs take it."""
    return StoredCommand(
        id=record.stable_id(),
        device_id=record.device_id or device_id,
        status=record.status or "",
        error=record.error or record.status_reason or "",
        created_at=record.created_at,
        delivered_at=record.delivered_at,
        completed_at=record.completed_at,
        result=record.result,
    )
