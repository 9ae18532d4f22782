"""A real agent on what a power cut left: it runs until everything has come to its end, and is judged then."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

from agent.adapters.sqlite_store import FILE_NAME
from agent.wire.commands import CommandRecord
from simulator.children import program_path
from tests.fault.disk import lay_out
from tests.fault.power_cuts import Image
from tests.fault.processes import ForkedProcess, ForkServer
from tests.fault.recording import write_config
from tests.fault.small_service import SmallService, World
from tests.fault.verdict import Books, Look, Reading, Seen, look_at, read_effects, readings_of

_WITHIN_S: Final = 120.0
_LOOK_S: Final = 0.05
_REVIVALS_MAX: Final = 3
_MADE_AHEAD: Final = 32


def revive_all(images: Iterable[Image], server: ForkServer, folder: Path, *, at_once: int = 4) -> list[str]:
    """Each image in turn, several at the same time; what is wrong, one line each."""

    def revive(item: tuple[int, Image]) -> list[str]:
        number, image = item
        return [f"{image}: {fault}" for fault in _Revival(image, server, folder / str(number)).run()]

    numbered = enumerate(images)
    faults: list[str] = []
    with ThreadPoolExecutor(at_once) as pool:
        # An image takes some room: no more of them are made than are about to be used.
        while some := list(islice(numbered, _MADE_AHEAD)):
            for found in pool.map(revive, some):
                faults += found
    return faults


class _Revival:
    """One image, one agent, one service."""

    def __init__(self, image: Image, server: ForkServer, folder: Path) -> None:
        self._image = image
        self._server = server
        self._folder = folder
        self._state = folder / "state"
        self._effects = folder / "effects.jsonl"
        self._starts = 0
        self._ended_by_itself: list[int] = []

    def run(self) -> list[str]:
        self._folder.mkdir(parents=True)
        lay_out(self._image.files, self._state)
        with SmallService(self._image.moment.past) as service:
            write_config(self._folder / "agent.yaml", self._state, service.base_url, self._effects)
            began_us = time.time_ns() // 1000
            agent = self._start()
            try:
                agent = self._until_the_end(agent, service, began_us)
            finally:
                agent.kill()
            books = self._judge(service.world)
        faults = books.faults
        if not faults:
            shutil.rmtree(self._folder)
        return faults

    def _start(self) -> ForkedProcess:
        self._starts += 1
        argv = [str(program_path("device-agent")), "run", "--config", str(self._folder / "agent.yaml")]
        return self._server.start(argv, self._folder / "agent.log", variables={"FAULT_EFFECTS": str(self._effects)})

    def _until_the_end(self, agent: ForkedProcess, service: SmallService, began_us: int) -> ForkedProcess:
        """Until no command is open and nothing that was read before the power cut waits; the agent that runs then."""
        until_s = time.monotonic() + _WITHIN_S
        while time.monotonic() < until_s:
            if not agent.running:
                # A power cycle that had not begun ends it once; more than that is a loop.
                if agent.exit_code != -9 or self._starts > _REVIVALS_MAX:
                    self._ended_by_itself.append(agent.exit_code or 0)
                    return agent
                agent = self._start()
            if not service.list_open() and all(life >= began_us for life in self._look().lives):
                return agent
            time.sleep(_LOOK_S)
        return agent

    def _look(self, *, whole: bool = False) -> Look:
        return look_at(self._state / FILE_NAME, self._folder / "peek", whole=whole)

    def _judge(self, world: World) -> Books:
        moment = self._image.moment
        promise = Seen(
            commands={command_id: state for command_id, (state, _) in moment.promise.get("commands", {}).items()},
            readings=_readings(moment.promise.get("readings", [])),
        )
        last = self._look(whole=True)
        return judge_end(
            world,
            last,
            self._effects,
            promise=promise,
            earlier_effects=moment.effects,
            ended_by_itself=self._ended_by_itself,
        )


def judge_end(
    world: World,
    last: Look,
    effects: Path,
    *,
    promise: Seen | None = None,
    earlier_effects: Iterable[dict[str, Any]] = (),
    ended_by_itself: Iterable[int] = (),
) -> Books:
    """The books of one agent on a small service.

    Args:
        world: the service at the end.
        last: its store at the end.
        effects: the file that its handlers wrote into.
        promise: what it took for safe before its last process.
        earlier_effects: lines from before, which are not in the file.
        ended_by_itself: exit codes that nobody asked for.
    """
    seen = promise or Seen()
    seen.add(last)
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in earlier_effects:
        lines[str(line["command_id"])].append(line)
    for command_id, found in read_effects(effects).items():
        lines[command_id] += found
    books = Books()
    books.add(
        sent={command_id: str(payload["command"]) for command_id, payload in world.payloads.items()},
        records={command_id: _record(world, command_id) for command_id in world.payloads},
        effects=lines,
        seen=seen,
        waiting=last.readings,
        stored=world.stored(),
        ended_by_itself=ended_by_itself,
    )
    return books


def _record(world: World, command_id: str) -> CommandRecord:
    result = world.results.get(command_id, {})
    return CommandRecord(
        id=command_id,
        command_payload=world.payloads[command_id],
        status=world.status_of(command_id),
        error=result.get("error"),
    )


def _readings(bodies: Sequence[dict[str, float]]) -> set[Reading]:
    return {reading for values in bodies for reading in readings_of(values)}
