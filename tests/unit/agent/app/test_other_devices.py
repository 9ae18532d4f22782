"""Readings that were taken as one device are never sent as another."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agent.adapters.sqlite_store import FILE_NAME, SqliteStore
from agent.app.other_devices import OTHER_DEVICES, OWNER, choose, describe, drop, find_others, release, swap_stores
from agent.cli.program import device_agent as program
from agent.core.outbox import Bounds
from agent.core.timekeeping import BootTime
from agent.errors import ConfigurationError, StorageError
from tests.factories import make_moment, make_reading
from tests.fakes import START_WALL_S, FakeClock


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder / FILE_NAME, clock=FakeClock(), trusts_wall=False)


def write(folder: Path, device_id: str, *values: float) -> None:
    with closing(opened(folder)) as store:
        store.journal.put_setting(OWNER, device_id)
        store.boots.learn("boot-1", BootTime(START_WALL_S - 1000.0, START_WALL_S - 999.0, 1000.0))
        for value in values:
            store.outbox.put(make_reading({"t": value}, make_moment(1000.0 + value)))


def waiting(folder: Path) -> list[float]:
    with closing(opened(folder)) as store:
        return [stored.reading.values["t"] for stored in store.outbox.next_batch(100)]


def test_the_store_of_another_id_is_put_aside_and_comes_back_with_its_id(tmp_path):
    write(tmp_path, "door-1", 1.0, 2.0)
    swap_stores(tmp_path, "door-1", "door-2")
    assert waiting(tmp_path) == []
    write(tmp_path, "door-2", 3.0)
    assert [(each.device_id, each.readings) for each in find_others(tmp_path)] == [("door-1", 2)]
    swap_stores(tmp_path, "door-2", "door-1")
    assert waiting(tmp_path) == [1.0, 2.0]
    assert [(each.device_id, each.readings) for each in find_others(tmp_path)] == [("door-2", 1)]


@pytest.mark.parametrize("device_id", ["../../etc", "a/b", "ü" * 200, ".", "door 1"])
def test_any_id_has_a_folder_of_its_own_inside(tmp_path, device_id):
    write(tmp_path, device_id, 1.0)
    aside = swap_stores(tmp_path, device_id, "door-2")
    assert aside.parent == tmp_path / OTHER_DEVICES
    assert [each.device_id for each in find_others(tmp_path)] == [device_id]


def test_what_is_released_is_sent_as_this_devices_with_its_times(tmp_path):
    write(tmp_path, "door-1", 1.0, 2.0)
    swap_stores(tmp_path, "door-1", "door-2")
    write(tmp_path, "door-2", 3.0)
    assert release(tmp_path, choose(tmp_path, "door-1"), FakeClock(), Bounds()) == 2
    assert waiting(tmp_path) == [3.0, 1.0, 2.0]
    assert describe(find_others(tmp_path)) == ""
    with closing(opened(tmp_path)) as store:
        assert "boot-1" in store.boots.known()


def test_nothing_is_released_while_an_agent_uses_the_store(tmp_path):
    write(tmp_path, "door-1", 1.0)
    swap_stores(tmp_path, "door-1", "door-2")
    with closing(opened(tmp_path)), pytest.raises(StorageError, match="another device-agent uses"):
        release(tmp_path, choose(tmp_path, "door-1"), FakeClock(), Bounds())
    assert [each.readings for each in find_others(tmp_path)] == [1]


def test_what_is_dropped_is_gone(tmp_path):
    write(tmp_path, "door-1", 1.0)
    swap_stores(tmp_path, "door-1", "door-2")
    drop(choose(tmp_path, "door-1"))
    assert list((tmp_path / OTHER_DEVICES).iterdir()) == []
    with pytest.raises(ConfigurationError, match="nothing of 'door-1' is kept aside"):
        choose(tmp_path, "door-1")


def run_once(folder: Path, device_id: str) -> str:
    """The log of an agent that starts, is ready and ends."""
    (folder / "token").write_text("a-token-of-this-test\n")
    (folder / "token").chmod(0o600)
    values = {
        "service": {"base_url": "http://127.0.0.1:9", "allow_plain_http": True},
        "device": {"device_id": device_id},
        "auth": {"mode": "bearer", "token_file": str(folder / "token")},
        "state_dir": str(folder / "state"),
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    argv = [sys.executable, "-m", "agent.cli", "run", "--config", str(folder / "config.yaml")]
    lines: list[str] = []
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr is not None
        for line in agent.stderr:
            lines.append(line)
            if "agent=ready" in line:
                agent.send_signal(signal.SIGTERM)
    assert agent.returncode == 0, lines
    return "".join(lines)


def test_a_start_under_another_id_puts_the_store_aside_and_says_so(tmp_path):
    (tmp_path / "state").mkdir()
    write(tmp_path / "state", "door-1", 1.0, 2.0)
    log = run_once(tmp_path, "door-2")
    assert "device=changed from door-1 to door-2" in log
    assert "kept aside, since device.device_id was changed: door-1 (2 readings, 0 results)" in log
    assert waiting(tmp_path / "state") == []
    assert [(each.device_id, each.readings) for each in find_others(tmp_path / "state")] == [("door-1", 2)]
    shown = CliRunner().invoke(program, ["other-devices", "list", "--config", str(tmp_path / "config.yaml")])
    assert "door-1" in shown.output
