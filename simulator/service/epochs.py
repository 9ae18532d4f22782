"""What requests rely on while they are under way: that their account is there, and the state the one they came to."""

from __future__ import annotations


class Epochs:
    """Counts what changes that from the outside. A request notes the number when it comes, and compares it later.

    Only the event loop touches it.

    Attributes:
        number: goes up with each deleted account and each replaced state.
    """

    def __init__(self) -> None:
        self.number = 0

    def account_deleted(self) -> None:
        """An account is gone; requests of others go on."""
        self.number += 1
