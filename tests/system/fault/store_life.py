"""``python -m tests.system.fault.store_life FOLDER PROMISES LIFE``: one life of a store, with what it has promised.

After each call of journal or outbox that has returned, one line goes into ``PROMISES``: what the store must hold from
now on. Even lives end without closing the store, as a process that is killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from agent.core.outbox import Bounds
from agent.core.values import Reading, SendOutcome
from agent.runtime.clocks import SystemClock
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.support.factories import make_command, make_entry, make_moment, make_outcome

BOUNDS = Bounds(max_bytes=4_000_000)
"""A small log, so that it is written back often."""


class Life:
    """Works with the store, and keeps the books of what it has promised."""

    def __init__(self, store: Store, promises: Path, number: int) -> None:
        self._store = store
        self._promises = promises
        self._number = number
        lines = promises.read_text().splitlines() if promises.exists() else []
        self._book: dict[str, Any] = json.loads(lines[-1]) if lines else {"commands": {}, "readings": [], "setting": ""}

    def run(self) -> None:
        for round_ in range(6):
            self._command(f"{self._number}-{round_}", "x" * (20_000 if round_ == 3 else 50))
            self._readings(self._number * 1000 + round_ * 20)
            self._book["setting"] = f"{self._number}-{round_}"
            self._store.journal.put_setting("last", self._book["setting"])
            self._promise()
        self._store.journal.admit([make_entry(f"{self._number}-open")])
        self._store.journal.start(f"{self._number}-open", make_moment())
        self._reached(f"{self._number}-open", "started")

    def _command(self, name: str, text: str) -> None:
        journal = self._store.journal
        journal.admit([make_entry(command=make_command(name, {"command": "ping", "text": text}))])
        self._reached(name, "received")
        journal.start(name, make_moment())
        self._reached(name, "started")
        journal.finish(name, make_outcome(result={"text": text}), make_moment())
        self._reached(name, "finished")
        journal.reported([name])
        self._reached(name, "reported")

    def _readings(self, first: int) -> None:
        outbox = self._store.outbox
        numbers = range(first, first + 10)
        for number in numbers:
            # The last one waits for its commit, and with it all that came before.
            outbox.put(Reading({"number": float(number)}, SystemClock().now()), wait=number == numbers[-1])
        self._book["readings"] += numbers
        self._promise()
        delivered = outbox.next_batch(6)
        gone = {int(each.reading.values["number"]) for each in delivered}
        self._book["readings"] = [number for number in self._book["readings"] if number not in gone]
        self._promise()
        outbox.settle(SendOutcome(delivered=tuple(each.key for each in delivered)))

    def _reached(self, command: str, state: str) -> None:
        self._book["commands"][command] = state
        self._promise()

    def _promise(self) -> None:
        descriptor = os.open(self._promises, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (json.dumps(self._book) + "\n").encode())
        finally:
            os.close(descriptor)


def main() -> None:
    """Live one life."""
    folder, promises, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    store = Store(folder / FILE_NAME, clock=SystemClock(), bounds=BOUNDS, group_window_s=0.01)
    store.start()
    Life(store, promises, number).run()
    if number % 2 == 0:
        os._exit(0)
    store.stop(60.0)


if __name__ == "__main__":
    main()
