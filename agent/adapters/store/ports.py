"""What the store's thread and the rooms around it are to each other. For the type checker alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from agent.adapters.sqlite_store import SqliteStore
    from agent.adapters.store.encoded_readings import EncodedReading
    from agent.core.values import SendOutcome

_T = TypeVar("_T")


class Writer(Protocol):
    """The one thread that owns the store."""

    def call(self, work: Callable[[SqliteStore], _T], *, writes: bool) -> _T:
        """Have the writer do this, and wait for its result and, if it writes, the commit."""
        ...

    def look_and_write(self, look: Callable[[SqliteStore], Callable[[SqliteStore], None] | None]) -> None:
        """Have the writer look, and commit what follows from it; None means that nothing does."""
        ...

    def submit(self, work: Callable[[SqliteStore], object], *, writes: bool) -> None:
        """Have the writer do this soon and, if it writes, commit it; nobody waits or learns whether it failed."""
        ...

    def buffer(self, draft: EncodedReading) -> None:
        """Take a reading that nobody waits for, unless readings are not grouped."""
        ...

    def put_now(self, draft: EncodedReading) -> int:
        """Take a reading and wait for its commit; how many were refused."""
        ...

    def settle(self, outcome: SendOutcome) -> None:
        """Delete or set aside what was sent."""
        ...


class PiggybackSetting(Protocol):
    """A small value that is written with a commit that happens anyway."""

    def pending(self, *, last: bool = False) -> tuple[str, str] | None:
        """The setting and its value, if it is time; no commit is made for it alone, except the last one."""
        ...

    def committed(self) -> None:
        """The commit is on the disk."""
        ...
