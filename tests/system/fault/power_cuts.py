"""Every moment of a recorded life of the store at which the power may go, what the disk may hold then, and what must.

For each sync of a file or of the folder there are two moments: right after it has returned, and right before, when all
that it was to make durable is still up to chance. The images of a moment are what
:class:`~tests.system.fault.disk.Loss` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.core.outbox import Bounds
from agent.core.values import Reading, SendOutcome
from agent.errors import AgentError
from agent.runtime.clocks import SystemClock
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.support.factories import make_command, make_entry, make_moment, make_outcome
from tests.system.fault.disk import Disk, Loss, Operation, Sync, SyncFolder, lay_out
from tests.system.fault.trace import Step, read_traces, strace

_ROOT: Final = Path(__file__).resolve().parents[3]
_ORDER: Final = {"received": 0, "started": 1, "finished": 2, "reported": 3}
_WITHIN_S: Final = 120.0
_LIVES: Final = 3
_ROWS_MAX: Final = 1_000_000
_NOTHING: Final = {"commands": {}, "readings": [], "setting": ""}


def record(folder: Path, program: str) -> list[Step]:
    """Play the lives of a store under strace: what it did to its folder, and its promises, in the order of time.

    Args:
        folder: where everything goes.
        program: strace's path.
    """
    state, promises, log = folder / "state", folder / "promises.jsonl", folder / "log"
    state.mkdir(mode=0o700)
    traces = [folder / f"trace-{number}" for number in range(_LIVES)]
    for number, trace in enumerate(traces):
        argv = [sys.executable, "-m", "tests.system.fault.power_cuts", str(state), str(promises), str(number)]
        traced = strace(program, trace, argv, {**os.environ, "PYTHONPATH": str(_ROOT)}, log)
        assert traced.wait(_WITHIN_S) == 0, log.read_text()
    return read_traces(traces, state, [promises])


@dataclass(frozen=True, slots=True)
class Image:
    """One state of the disk after the power went.

    Attributes:
        number: how many steps lie before it.
        promise: what the store has promised last.
        following: what it would promise next: an image may hold that already.
    """

    number: int
    promise: dict[str, Any]
    following: dict[str, Any]
    loss: Loss
    files: dict[str, bytes]

    def __str__(self) -> str:
        return f"power cut before step {self.number}, {self.loss}"


def images(steps: Sequence[Step], *, seed: int, of_sectors: int) -> Iterator[Image]:
    """What the disk may hold, moment by moment; random sectors as often as asked for, equal images once."""
    promises = [(index, step.what[1]) for index, step in enumerate(steps) if isinstance(step.what, tuple)]
    disk = Disk()
    for index, step in enumerate(steps):
        if isinstance(step.what, tuple):
            continue
        is_sync = isinstance(step.what, Sync | SyncFolder)
        if is_sync:
            yield from _images(index, disk, promises, random.Random(f"{seed} {index} before"), of_sectors)
        disk.do(step.what)
        if is_sync:
            yield from _images(index + 1, disk, promises, random.Random(f"{seed} {index} after"), of_sectors)


def _images(
    number: int, disk: Disk, promises: Sequence[tuple[int, Any]], chance: random.Random, of_sectors: int
) -> Iterator[Image]:
    promise = next((made for index, made in reversed(promises) if index < number), _NOTHING)
    following = next((made for index, made in promises if index >= number), promise)
    losses = [Loss.ALL]
    if disk.unsynced:
        losses += [Loss.NONE, Loss.TORN, Loss.SIZES, Loss.NAMES, *[Loss.SECTORS] * of_sectors]
    seen: list[dict[str, bytes]] = []
    for loss in losses:
        files = disk.after_power_cut(loss, chance)
        if files not in seen:
            seen.append(files)
            yield Image(number, promise, following, loss, files)


def open_and_judge(image: Image, folder: Path) -> list[str]:
    """Open the store on the image as an agent does, and hold it against the promise; what is wrong, one line each."""
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(image.files, folder)
    try:
        with Store(folder / FILE_NAME, clock=SystemClock()) as store:
            faults = list(_judge(store, image))
    except AgentError as error:
        faults = [f"the store does not open: {error}"]
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    if verdict != "ok":
        faults.append(f"the file is damaged: {verdict}")
    return [f"{image}: {fault}" for fault in faults]


def _judge(store: Store, image: Image) -> Iterator[str]:
    status = store.status(_WITHIN_S)
    # A power cut is no damage.
    if status is None or status.incidents:
        yield f"the store was replaced: {status and status.incidents}"
    known = store.journal.known(list(image.promise["commands"]))
    for command, state in image.promise["commands"].items():
        now = known[command].state if command in known else "gone"
        if _ORDER.get(now, -1) < _ORDER[state]:
            yield f"acknowledged command lost: {command} was {state}, is {now}"
    waiting = [int(row.reading.values["number"]) for row in store.outbox.next_batch(_ROWS_MAX)]
    if len(waiting) != len(set(waiting)):
        yield "a reading waits twice"
    # What would be delivered next may be gone already.
    for number in sorted(set(image.promise["readings"]) & set(image.following["readings"]) - set(waiting)):
        yield f"reading lost: {number}"
    allowed = {image.promise["setting"], image.following["setting"]}
    if (store.journal.setting("last") or "") not in allowed:
        yield f"the setting is {store.journal.setting('last')!r}, promised were {allowed}"


def without_syncs_of(steps: Sequence[Step], name: str) -> list[Step]:
    """The recording of a store whose syncs of this file never reach the disk."""
    nothing: Operation = Sync("a file that nobody has")
    return [Step(step.at_s, nothing) if step.what == Sync(name) else step for step in steps]


# --- the life that is recorded ----------------------------------------------------------------------------------------

BOUNDS = Bounds(max_bytes=4_000_000)
"""A small log, so that it is written back often."""


class Life:
    """Works with the store, and keeps the books of what it has promised.

    After each call of journal or outbox that has returned, one line goes into the promises: what the store must hold
    from now on. Even lives end without closing the store, as a process that is killed.
    """

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
    """``python -m tests.system.fault.power_cuts FOLDER PROMISES LIFE``: one life of a store."""
    folder, promises, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    store = Store(folder / FILE_NAME, clock=SystemClock(), bounds=BOUNDS, group_window_s=0.01)
    store.start()
    Life(store, promises, number).run()
    if number % 2 == 0:
        os._exit(0)
    store.stop(60.0)


if __name__ == "__main__":
    main()
