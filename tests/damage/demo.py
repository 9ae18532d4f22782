"""A demo that was played, and what damages it before all is read back: stored rows, and the agent's own files."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.errors import AgentError
from agent.wire.auth import KeyPair
from simulator.demo.folder import open_folder
from simulator.demo.proofs import OutboxCounters, exit_code
from simulator.demo.readback import read_device
from simulator.demo.real_agent import Witnessed
from simulator.demo.reporting import make_proofs
from simulator.demo.screen import Screen
from simulator.demo.stage import DEVICES_MIN, DemoSettings, Stage
from simulator.demo.story import DemoOutcome, Story
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from tests.damage.run import DATABASE, LOST, Kind, planted

FAILED = ExitCode.CHECK_FAILED


@dataclass(frozen=True, slots=True)
class Played:
    """A demo that held.

    Attributes:
        outcome: all that it left; its processes have ended.
        data: of its service.
    """

    outcome: DemoOutcome
    data: Path


@dataclass(frozen=True, slots=True)
class _Files:
    """What the real agent's programs wrote down, as :class:`simulator.demo.real_agent.RealAgent` reads it."""

    effects: Counter[str]
    made: tuple[Witnessed, ...]

    def runs(self) -> Counter[str]:
        return self.effects

    def witnessed(self) -> tuple[Witnessed, ...]:
        return self.made


@dataclass(slots=True)
class DemoCase:
    """A copy of what the demo left, to be damaged.

    Attributes:
        effects: command id -> how often a program of the real agent began, by its own file.
        witnessed: by the witness sensor's own file.
        outbox: the counters of the real agent's outbox.
    """

    played: Played
    folder: Path
    effects: Counter[str] = field(default_factory=Counter)
    witnessed: tuple[Witnessed, ...] = ()
    outbox: OutboxCounters | None = None
    _database: sqlite3.Connection | None = None

    def __post_init__(self) -> None:
        outcome = self.played.outcome
        self.effects, self.witnessed, self.outbox = outcome.agent.runs(), outcome.agent.witnessed(), outcome.outbox

    @property
    def real(self) -> str:
        """The real agent's device id."""
        return self.played.outcome.onboarded.devices.real.device_id

    @property
    def database(self) -> sqlite3.Connection:
        """What the service stored, to be changed while nobody serves it."""
        if self._database is None:
            shutil.copytree(self.played.data, self.folder / "service")
            self._database = sqlite3.connect(self.folder / "service" / DATABASE)
        return self._database

    def change(self, statement: str, *values: Any) -> None:
        """Change what is stored; something has to change."""
        assert self.database.execute(statement, values).rowcount > 0, statement

    def rows(self, of: str) -> list[tuple[int, dict[str, Any]]]:
        """Row number and values of readings, of the real agent (``witness``, ``board``) or a ``virtual`` device."""
        devices = self.played.outcome.onboarded.devices
        device = devices.power_cut.device_id if of == "virtual" else self.real
        query = (
            "SELECT readings.seq, sensor_data FROM readings JOIN devices ON devices.seq = readings.device_seq "
            "WHERE devices.id = ? ORDER BY readings.seq"
        )
        found = [(seq, json.loads(text)) for seq, text in self.database.execute(query, (device,)).fetchall()]
        return [row for row in found if of == "virtual" or ("witness_sequence" in row[1]) == (of == "witness")]


def play(root: Path) -> Played:
    """Play the demo with as few devices as it can have."""
    with open_folder(root) as folder, Stage(folder) as stage:
        outcome = Story(stage, Screen(Console(file=io.StringIO())), DemoSettings(root, DEVICES_MIN, 5, False)).play()
    assert exit_code(make_proofs(outcome)) == 0, make_proofs(outcome)
    return Played(outcome, folder.service / "data")


def proved(case: DemoCase) -> tuple[int, str]:
    """What the demo would have said of it: its exit code, and the details of all proofs that did not hold."""
    outcome, keys = case.played.outcome, case.played.outcome.service.keys
    assert case.database
    case.database.commit()
    case.database.close()
    config = ServiceConfig(
        data_dir=case.folder / "service", api_key=keys.api_key, secret_key=keys.secret_key, rate_limit=0
    )
    try:
        with (
            RunningService(config) as service,
            ServiceClient(service.base_url, KeyPair(keys.api_key, keys.secret_key)) as client,
        ):
            removed = outcome.onboarded.devices.removed.device_id
            again = {name: read_device(client, name) for name in outcome.read_back if name != removed}
    except AgentError as error:
        return int(exit_code_of(error)), str(error)
    files: Any = _Files(case.effects, case.witnessed)
    proofs = make_proofs(replace(outcome, agent=files, outbox=case.outbox, read_back={**outcome.read_back, **again}))
    return int(exit_code(proofs)), " ".join(detail for proof in proofs for detail in proof.details)


# --- readings -------------------------------------------------------------------------------------------------------


def _row(of: str, statement: str, at: int = 2) -> Callable[[DemoCase], None]:
    """Change the row of one reading, the third of its kind."""
    return lambda case: case.change(statement, case.rows(of)[at][0])


def _values(of: str, change: Callable[[dict[str, Any]], object]) -> Callable[[DemoCase], None]:
    def plant(case: DemoCase) -> None:
        seq, values = case.rows(of)[2]
        change(values)
        case.change("UPDATE readings SET sensor_data = ? WHERE seq = ?", json.dumps(values), seq)

    return plant


def _again(of: str) -> Callable[[DemoCase], None]:
    """Store a reading once more."""
    columns = "manufacturer_seq, device_seq, recorded_at, received_at, sensor_data"
    return _row(of, f"INSERT INTO readings (id, {columns}) SELECT 'copy', {columns} FROM readings WHERE seq = ?")


def _one_more(of: str) -> Callable[[DemoCase], None]:
    """Store a reading that nobody made."""
    columns = "manufacturer_seq, device_seq, received_at, sensor_data"
    return _row(
        of,
        f"INSERT INTO readings (id, recorded_at, {columns}) SELECT 'more', recorded_at - 17, {columns} FROM readings "
        "WHERE seq = ?",
    )


def _both(*plants: Callable[[DemoCase], None]) -> Callable[[DemoCase], None]:
    def plant(case: DemoCase) -> None:
        for each in plants:
            each(case)

    return plant


def _off(name: str) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        values[name] += 0.5

    return change


_DELETE = "DELETE FROM readings WHERE seq = ?"
_LATER = "UPDATE readings SET recorded_at = recorded_at + 3600000 WHERE seq = ?"
_ELSEWHERE = "UPDATE readings SET device_seq = (SELECT min(seq) FROM devices WHERE seq <> device_seq) WHERE seq = ?"


def _readings() -> Iterator[Kind]:
    virtual = partial(planted, "readings of a virtual device")
    yield virtual("one deleted", _row("virtual", _DELETE), LOST, "1 lost")
    yield virtual("one stored twice", _again("virtual"), FAILED, "1 doubled")
    yield virtual("another value", _values("virtual", _off("temperature_celsius")), LOST, "1 altered")
    yield virtual("another time", _row("virtual", _LATER), LOST, "1 lost")
    yield virtual("under another device", _row("virtual", _ELSEWHERE), LOST, "1 lost")
    yield virtual("one that nobody sent", _one_more("virtual"), FAILED, "1 unknown")
    witness = partial(planted, "readings of the agent's numbered sensor")
    yield witness("one deleted", _row("witness", _DELETE), LOST, "1 lost", "are stored")
    yield witness("one stored twice", _again("witness"), FAILED, "1 doubled")
    yield witness("another value", _values("witness", _off("witness_check")), LOST, "1 altered")
    yield witness("another number", _values("witness", lambda values: values.update(witness_sequence=900)), LOST,
                  "1 lost", "1 unknown")  # fmt: skip
    yield witness("no number", _values("witness", lambda values: values.pop("witness_sequence")), LOST,
                  "1 lost")  # fmt: skip
    yield witness("another time", _row("witness", _LATER), FAILED, "1 readings carry another time")
    yield witness("under another device", _row("witness", _ELSEWHERE), LOST, "1 lost")
    board = partial(planted, "the agent's readings of the machine")
    yield board("one deleted", _row("board", _DELETE), LOST, "are stored")
    yield board("one stored twice", _again("board"), FAILED, "1 readings are stored more than once")
    waits = _outbox(delivered=-1, waiting=1)
    yield witness("the newest still in the outbox", _both(_row("witness", _DELETE, -1), waits),
                  ExitCode.INCONCLUSIVE, "1 reading was still in its outbox")  # fmt: skip
    yield witness("one deleted, another in the outbox", _both(_row("witness", _DELETE), _outbox(accepted=1, waiting=1)),
                  LOST, "are stored")  # fmt: skip
    yield witness("two deleted, one in the outbox", _both(*[_row("witness", _DELETE)] * 2, waits), LOST,
                  "2 lost")  # fmt: skip
    yield board("one deleted, another stored twice", _both(_again("board"), _row("board", _DELETE, 0)), LOST,
                "1 readings are stored more than once")  # fmt: skip


# --- commands -------------------------------------------------------------------------------------------------------

_PING = "(SELECT min(seq) FROM commands WHERE status = 'succeeded')"
_REFUSED = "(SELECT min(seq) FROM commands WHERE status = 'rejected')"


def _sql(statement: str) -> Callable[[DemoCase], None]:
    return lambda case: case.change(statement)


def _commands() -> Iterator[Kind]:
    kind = partial(planted, "stored commands of the demo")
    yield kind("one deleted", _sql(f"DELETE FROM commands WHERE seq = {_PING}"), LOST, "the service does not list it")
    yield kind("under another id", _sql(f"UPDATE commands SET id = 'other' WHERE seq = {_PING}"), LOST,
               "the service does not list it", "command other: listed, but nobody sent it")  # fmt: skip
    yield kind("under another device", _sql(
        f"UPDATE commands SET device_seq = (SELECT min(seq) FROM devices WHERE seq <> device_seq) WHERE seq = {_PING}"
    ), FAILED, "it is listed for another device")  # fmt: skip
    columns = "manufacturer_seq, device_seq, command_payload, status, created_at, completed_at, expires_at"
    yield kind("one that nobody sent", _sql(
        f"INSERT INTO commands (id, {columns}) SELECT 'more', {columns} FROM commands WHERE seq = {_PING}"
    ), FAILED, "command more: listed, but nobody sent it")  # fmt: skip
    for state in ("failed", "queued", "in_progress", "expired", "canceled"):
        statement = f"UPDATE commands SET status = '{state}', expires_at = 4000000000000 WHERE seq = {_PING}"
        yield kind(f"succeeded, stored as {state}", _sql(statement), FAILED, f"{state}, not succeeded")
    made_good = f"UPDATE commands SET status = 'succeeded' WHERE seq = {_REFUSED}"
    yield kind("rejected, stored as succeeded", _sql(made_good), FAILED, "succeeded, not rejected")
    yield kind("rejected, for another reason", _sql(
        f"UPDATE commands SET result = NULL, status_reason = 'planted' WHERE seq = {_REFUSED}"
    ), FAILED, "rejected with 'planted', not")  # fmt: skip
    yield kind("no time of completion", _sql(f"UPDATE commands SET completed_at = NULL WHERE seq = {_PING}"), FAILED,
               "without a time of completion")  # fmt: skip


# --- the agent's own files ------------------------------------------------------------------------------------------


def _effects(change: Callable[[Counter[str]], object]) -> Callable[[DemoCase], None]:
    return lambda case: change(case.effects)


def _outbox(**more: int) -> Callable[[DemoCase], None]:
    def plant(case: DemoCase) -> None:
        assert case.outbox
        case.outbox = replace(case.outbox, **{name: getattr(case.outbox, name) + add for name, add in more.items()})

    return plant


def _witness(change: Callable[[tuple[Witnessed, ...]], tuple[Witnessed, ...]]) -> Callable[[DemoCase], None]:
    def plant(case: DemoCase) -> None:
        case.witnessed = change(case.witnessed)

    return plant


def _one_made(made: tuple[Witnessed, ...]) -> tuple[Witnessed, ...]:
    """A reading that the file has and nobody sent, in the middle."""
    middle = made[2]
    return (*made[:2], replace(middle, fact=replace(middle.fact, key=777)), *made[2:])


def _own_files() -> Iterator[Kind]:
    effects = partial(planted, "the file of effects")
    yield effects("a run more", _effects(lambda runs: runs.update([next(iter(runs))])), FAILED, "times, not")
    yield effects("a run less", _effects(lambda runs: runs.pop(next(iter(runs)))), FAILED, "ran 0 times, not")
    yield effects("a run of no command", _effects(lambda runs: runs.update(["more"])), FAILED,
                  "command more: ran 1 times, but nobody sent it")  # fmt: skip
    yield effects("empty", _effects(lambda runs: runs.clear()), FAILED, "ran 0 times, not")
    witness = partial(planted, "the file of the numbered sensor")
    yield witness("a line missing", _witness(lambda made: made[:2] + made[3:]), FAILED, "1 unknown")
    yield witness("a line more", _witness(_one_made), LOST, "1 lost")
    yield witness("empty", _witness(lambda _: ()), FAILED, "the service accepted no reading")
    outbox = partial(planted, "the counters of the outbox")
    yield outbox("one more delivered", _outbox(delivered=1), LOST, "but accounts for", "are stored")
    yield outbox("one more taken in", _outbox(accepted=1), LOST, "but accounts for")
    yield outbox("one more that waits", _outbox(accepted=1, waiting=1), ExitCode.INCONCLUSIVE,
                 "1 reading was still in its outbox")  # fmt: skip
    yield outbox("one waits, though it is stored", _outbox(delivered=-1, waiting=1), ExitCode.INCONCLUSIVE,
                 "1 reading was still in its outbox")  # fmt: skip
    yield outbox("one dropped", _outbox(dropped=1), LOST, "dropped 1 readings at a bound")
    yield outbox("one set aside", _outbox(set_aside=1, accepted=1), FAILED, "the service refused 1 readings for good")


def demos() -> Iterator[Kind]:
    """Everything that is damaged of a demo."""
    yield from _readings()
    yield from _commands()
    yield from _own_files()
