"""A process that is killed in the middle of its writes: whatever it acknowledged is there, again and again."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

from agent.adapters.sqlite_store import SqliteStore
from agent.core.values import CommandState
from tests.fakes import FakeClock

CYCLES = 20
ACKNOWLEDGED_PER_CYCLE = 40

# Four threads live commands from admission to the report and put readings; each step is printed once its call returned.
WRITER = """
    import itertools, os, sys, threading
    from pathlib import Path
    from agent.adapters.store_service import StoreService
    from agent.core.values import SendOutcome
    from tests.factories import make_entry, make_moment, make_outcome, make_reading
    from tests.fakes import FakeClock

    service = StoreService(Path(sys.argv[1]), clock=FakeClock(), group_window_s=0.0)
    service.start()
    cycle = sys.argv[2]

    def acknowledge(*words):
        os.write(1, (" ".join(words) + "\\n").encode())

    def live(thread):
        for number in itertools.count():
            name = f"{cycle}-{thread}-{number}"
            service.journal.admit([make_entry(name)])
            acknowledge("received", name)
            service.journal.start(name, make_moment())
            acknowledge("started", name)
            service.outbox.put(make_reading({name: number}), wait=True)
            acknowledge("reading", name)
            service.journal.finish(name, make_outcome(), make_moment())
            acknowledge("finished", name)
            if number % 2:
                service.journal.reported([name])
                acknowledge("reported", name)
            elif number % 4:
                service.journal.put_aside({name: "405"})
                acknowledge("put_aside", name)

    threads = [threading.Thread(target=live, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
"""

ORDER = [
    CommandState.RECEIVED,
    CommandState.STARTED,
    CommandState.FINISHED,
    CommandState.REPORTED,
    CommandState.PUT_ASIDE,
]


def run_and_kill(path: Path, cycle: int) -> list[tuple[str, str]]:
    """What the process acknowledged before SIGKILL took it."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(cycle)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ACKNOWLEDGED_PER_CYCLE)]
        process.kill()
        # What was still in the pipe was acknowledged, too; a line that the kill cut off was not.
        lines += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    words = [line.decode().split() for line in lines]
    assert all(len(pair) == 2 for pair in words)
    return [(pair[0], pair[1]) for pair in words]


def test_nothing_that_was_acknowledged_is_lost_over_many_kills(tmp_path):
    path = tmp_path / "agent.db"
    reached: dict[str, CommandState] = {}
    readings: set[str] = set()
    for cycle in range(CYCLES):
        for word, name in run_and_kill(path, cycle):
            if word == "reading":
                readings.add(name)
            else:
                reached[name] = CommandState(word)
        with closing(SqliteStore(path, clock=FakeClock())) as store:
            assert store.incidents == []
            entries = store.journal.known(list(reached))
            lost = [
                name
                for name, state in reached.items()
                if name not in entries or ORDER.index(entries[name].state) < ORDER.index(state)
            ]
            assert lost == []
            stored = store.outbox.next_batch(1_000_000)
            assert readings <= {name for each in stored for name in each.reading.values}
            assert len({each.key for each in stored}) == len(stored) == store.outbox.stats().accepted
    assert len(reached) > CYCLES * 4
    assert len(readings) > CYCLES * 4
