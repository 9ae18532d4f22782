"""Which devices' commands a gateway fetches, where several gateways have one key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """A part of all devices, by their ids alone: gateways that never talk to each other agree on it.

    Attributes:
        index: of this gateway's part, from 0.
        count: of the parts; every device is in exactly one.
    """

    index: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"part {self.index + 1} of {self.count}, share.index {self.index}"

    def has(self, device_id: str) -> bool:
        """Whether this device's commands are fetched here."""
        if self.count == 1:
            return True
        digest = hashlib.blake2b(device_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.count == self.index
