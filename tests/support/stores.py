"""The agent's store on a file, for tests of what survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.store.store import Store


@contextmanager
def reopening(path: Path, **options: Any) -> Iterator[Callable[..., Store]]:
    """Gives the store; each call stops it and starts it again, as a restart does."""
    running: list[Store] = []

    def reopen(**more: Any) -> Store:
        for store in running:
            store.stop(60)
        running[:] = [Store(path, **{**options, **more})]
        running[0].start()
        return running[0]

    yield reopen
    for store in running:
        store.stop(60)
