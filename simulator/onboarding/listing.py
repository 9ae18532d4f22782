"""The list of a user's devices, and whether a server may have cut it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from agent.errors import NotFound
from agent.wire.models import Device
from simulator.onboarding.patience import Patience
from simulator.wire import paths
from simulator.wire.client import ServiceClient

_PAGE: Final = 10
"""Servers cut lists at round numbers: 20, 50, 100, 1,000."""


@dataclass(frozen=True, slots=True)
class DeviceList:
    """The devices of a list.

    Attributes:
        devices: all of them.
        may_be_cut: a round number of them came, and nothing says whether there are more: what is not in it may be
            behind it, and nobody is to be accused.
    """

    devices: list[Device]
    may_be_cut: bool


def read_devices(client: ServiceClient, user_id: str) -> DeviceList:
    """All devices of a user; none of one whom the service does not know.

    Raises:
        ServiceError: the list cannot be read.
    """
    devices: list[Device] = []
    last = None
    try:
        for _, last in client.pages(paths.user_devices(user_id), {}):
            devices += [Device.receive(item) for item in last.items]
    except NotFound:
        return DeviceList([], may_be_cut=False)
    says_nothing = last is not None and last.has_more is None and last.total != len(devices)
    return DeviceList(devices, may_be_cut=bool(devices) and says_nothing and len(devices) % _PAGE == 0)


class SharedList:
    """Reads the list of a user; threads that wait at the same time share one reading."""

    def __init__(self, client: ServiceClient, user_id: str, patience: Patience) -> None:
        self._client, self._user_id, self._patience = client, user_id, patience
        self._reading = threading.Lock()
        self._begun = 0
        self._done = 0
        self._listed = DeviceList([], may_be_cut=False)

    def read(self) -> DeviceList:
        """A list whose reading began after this call.

        Raises:
            ServiceError: it cannot be read.
        """
        wanted = self._begun + 1
        with self._reading:
            if self._done < wanted:
                self._begun += 1
                self._listed = self._patience.repeat(lambda: read_devices(self._client, self._user_id))
                self._done = self._begun
            return self._listed
