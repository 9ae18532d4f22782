"""Who may look at a wall clock. Everything else measures on the monotonic one, which nobody can set."""

from __future__ import annotations

import ast
from pathlib import Path

import agent

ROOT = Path(agent.__file__).parent

MAY: dict[str, str] = {
    "adapters/clocks.py": "is the clock",
    "core/timekeeping.py": "decides what a wall clock is worth",
    "runtime/service_clock.py": "compares it with the true time",
    "adapters/sqlite_store.py": "names a damaged file and an incident after it",
    "adapters/store/journal_rows.py": "stores moments; compares only what is dated",
    "adapters/store/outbox_rows.py": "stores moments; compares only what is dated",
    "adapters/store/counts.py": "counts gaps; shows from when to when, to a person",
    "adapters/store/gap_rows.py": "stores moments; shows from when to when, to a person",
    "core/gaps.py": "across boots, which comes first; within one the monotonic clock tells",
    "runtime/ledger.py": "counts by day, as the device believes",
    "adapters/mqtt_device.py": "default of a parameter, for tests",
    "adapters/mqtt_uplink.py": "default of a parameter, for tests",
    "adapters/http_uplink.py": "default of a parameter, for tests",
    "runtime/result_reporter.py": "default of a parameter, for tests",
    "runtime/results_aside.py": "notes when results were offered; compares only what is plausible",
    "runtime/lanes.py": "default of a parameter, for tests",
    "runtime/intake.py": "with moments whose wall clock the intake has replaced by the true time",
    "runtime/health.py": "shows since when, to a person",
    "handlers/built_in/ping.py": "answers what the device believes",
    "wire/token_keeper.py": "when to renew tokens read from a file; a wrong clock makes it early or late, no more",
    "wire/refreshing.py": "default of the above",
    "wire/probe/line.py": "says how far this machine's clock is from the server's; nothing hangs on it",
    "app/first_contact.py": "shows a person what the clock shows, by which a certificate is not good",
    "doctor/clock.py": "shows a person what the clock shows",
    "doctor/subject.py": "compares the clock with what others say",
    "app/metrics.py": "ages of what is counted, for a person's charts",
    "app/diagnostics.py": "names bundles, and tidies them up by the times of files",
    "app/life.py": "the status file, for a person",
    "app/logs.py": "dates log lines, as the device believes",
    "app/status.py": "likewise",
    "doctor/quick_check.py": "says how long tokens still live, to a person",
    "cli/options.py": "shows ages to a person",
}
"""File -> why."""

_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


def uses(source: str) -> set[str]:
    """What in the source looks at a wall clock."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if node.attr == "wall_s" or (owner, node.attr) in _CALLS:
                found.add(f"{owner}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {f"from time import {name.name}" for name in node.names if ("time", name.name) in _CALLS}
    return found


def test_only_these_rooms_look_at_a_wall_clock():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        looks = uses(path.read_text("utf-8"))
        if looks and name not in MAY:
            found[name] = sorted(looks)
    assert not found, "measure intervals with clock.now().monotonic_s, and date things with the service clock"


def test_the_list_names_no_room_that_has_no_need_of_it():
    idle = [name for name in MAY if (ROOT / name).exists() and not uses((ROOT / name).read_text("utf-8"))]
    assert not idle


def test_the_search_finds_what_it_looks_for():
    assert uses("import time\ntime.time()") == {"time.time"}
    assert uses("import datetime\ndatetime.datetime.now()") == {"datetime.now"}
    assert uses("from time import time_ns") == {"from time import time_ns"}
    assert uses("clock.now().wall_s") == {".wall_s"}
    assert uses("time.monotonic()") == set()
