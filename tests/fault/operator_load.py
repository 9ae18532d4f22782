"""An operator who sends commands of every kind to many agents for hours, and what must have come of them."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from agent.errors import ServiceError
from agent.wire import topics
from agent.wire.command_states import FINAL_STATES
from agent.wire.sending import SendCommand
from simulator.wire.client import ServiceClient
from tests.fault.steady_rig import CURVE, SteadyAgent, SteadyRig, numbers_of
from tests.fault.verdict import read_effects
from tests.mosquitto import end_client

_SETTLE_S: Final = 120.0
_LOOK_S: Final = 1.0
_ANY: Final = frozenset(FINAL_STATES)
_CHATTY_EVERY_S: Final = 5.0
_METRICS_EVERY_S: Final = 10.0
_KEPT_OPEN_S: Final = 172_800
_ENDED_WITHOUT_A_RUN: Final = frozenset({"expired", "timed_out", "rejected", "failed"})


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of command; ``ends`` holds the states in which it may end."""

    name: str
    payload: dict[str, Any]
    ends: frozenset[str] = frozenset({"succeeded"})
    ttl_s: int | None = None


# An agent gets them in turn. What expires comes behind a long one in the same lane, a second later: where the agent
# was slow it may still be run in time, so each end is good, and how many expired is counted.
KINDS: Final = (
    Kind("ping", {"command": "ping", "echo": "steady"}),
    Kind("append", {"command": "append", "seconds": 0.1}),
    Kind("unknown", {"command": "no_such_handler"}, frozenset({"rejected"})),
    Kind("read", {"command": "read_sensors", "names": [CURVE]}),
    Kind("invalid", {"command": "append", "seconds": -1}, frozenset({"rejected"})),
    Kind("interval", {"command": "set_interval", "name": CURVE, "interval_s": 6}),
    Kind("level", {"command": "log_level", "level": "info", "for_s": 60}),
    Kind("misspelt", {"command": "read_sensors", "names": ["nobody"]}, frozenset({"rejected"})),
)
_LONG: Final = Kind("long", {"command": "append", "seconds": 3})
_SHORT_LIVED: Final = Kind("short-lived", {"command": "append", "seconds": 0.1}, _ANY, ttl_s=1)
_AWAY: Final = Kind("away", {"command": "ping"}, _ENDED_WITHOUT_A_RUN, ttl_s=2)
_PAIR_EVERY: Final = 10
_SEQUENCE: Final = "witness_sequence"


@dataclass(slots=True)
class Sent:
    """What the operator sent.

    Attributes:
        commands: device id -> command id -> kind.
        unanswered: sendings without an answer.
        troubles: what ended the operator before its time.
    """

    commands: dict[str, dict[str, Kind]] = field(default_factory=dict)
    unanswered: int = 0
    troubles: list[str] = field(default_factory=list)


@contextlib.contextmanager
def operator(rig: SteadyRig, sent: Sent) -> Iterator[None]:
    """Commands, repeated ``online`` of one device, and reading the gateway's figures, while the block lasts."""
    stop = threading.Event()

    def work() -> None:
        try:
            _operate(rig, sent, stop)
        except Exception as error:  # noqa: BLE001 - a fault of the run, which goes on
            sent.troubles.append(f"the operator ended: {error!r}")

    thread = threading.Thread(target=work, name="operator")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _operate(rig: SteadyRig, sent: Sent, stop: threading.Event) -> None:
    chatty = rig.broker.client("chatty")
    try:
        chatty.subscribe(topics.commands_filter(rig.chatty_id), 1)
        with rig.client() as client:
            next_s = {"command": 0.0, "online": 0.0, "metrics": 0.0}
            turn, is_sent = 0, False
            while not stop.wait(max(0.0, min(next_s.values()) - time.monotonic())):
                now_s = time.monotonic()
                if next_s["command"] <= now_s:
                    _send_turn(client, rig, sent, turn)
                    turn, next_s["command"] = turn + 1, now_s + rig.plan.command_every_s
                if next_s["online"] <= now_s:
                    is_sent = is_sent or _send_what_stays_open(client, rig.chatty_id)
                    chatty.publish(topics.status(rig.chatty_id), b"online", 1, retain=True)
                    next_s["online"] = now_s + _CHATTY_EVERY_S
                if next_s["metrics"] <= now_s:
                    address = f"http://127.0.0.1:{rig.metrics_port}/metrics"
                    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
                        answer.read()
                    next_s["metrics"] = now_s + _METRICS_EVERY_S
    finally:
        end_client(chatty)


def _send_what_stays_open(client: ServiceClient, device_id: str) -> bool:
    """Send a command that nobody answers: it is published again whenever its device says that it is there."""
    command = SendCommand(device_id=device_id, command_payload={"command": "ping"}, ttl_seconds=_KEPT_OPEN_S)
    try:
        client.send_command(command)
    except ServiceError:
        return False
    return True


def _send_turn(client: ServiceClient, rig: SteadyRig, sent: Sent, turn: int) -> None:
    round_number, at = divmod(turn, len(rig.agents))
    device_id = rig.agents[at].device_id
    if turn % _PAIR_EVERY == _PAIR_EVERY - 1:
        _send(client, sent, rig.away_id, _AWAY)
    if (round_number + at) % _PAIR_EVERY == _PAIR_EVERY - 1:
        _send(client, sent, device_id, _LONG)
        _send(client, sent, device_id, _SHORT_LIVED)
    else:
        _send(client, sent, device_id, KINDS[(round_number + at) % len(KINDS)])


def _send(client: ServiceClient, sent: Sent, device_id: str, kind: Kind) -> None:
    command = SendCommand(device_id=device_id, command_payload=kind.payload, ttl_seconds=kind.ttl_s)
    try:
        record = client.send_command(command)
    except ServiceError:
        sent.unanswered += 1
        return
    sent.commands.setdefault(device_id, {})[str(record.id)] = kind


# --- what came of it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the load.

    Attributes:
        ends: how many commands ended in which state.
        readings: that were read by an agent's witness; each must be stored once.
    """

    faults: list[str]
    ends: Counter[str] = field(default_factory=Counter)
    readings: int = 0


def settle_and_judge(rig: SteadyRig, sent: Sent) -> Outcome:
    """Wait until all commands have ended and all readings are stored, two minutes at most, and judge what is there."""
    numbers = {each.name: numbers_of(each.witness) for each in rig.agents}
    faults: list[str] = []
    ends: Counter[str] = Counter()
    until_s = time.monotonic() + _SETTLE_S
    with rig.client() as client:
        for device_id, kinds in sent.commands.items():
            states = _ended(client, device_id, kinds, until_s)
            ends.update(states.values())
            faults += faults_of_commands(kinds, states)
        for each in rig.agents:
            runs = {command_id: len(lines) for command_id, lines in read_effects(each.effects).items()}
            faults += faults_of_effects(each.name, sent.commands.get(each.device_id, {}), runs)
            stored = _stored(client, each, numbers[each.name], until_s)
            faults += faults_of_readings(each.name, numbers[each.name], stored)
    return Outcome(faults, ends, sum(map(len, numbers.values())))


def faults_of_commands(kinds: Mapping[str, Kind], states: Mapping[str, str]) -> list[str]:
    """Commands that did not end as their kind must."""
    found = ((command_id, kind, states.get(command_id, "gone")) for command_id, kind in kinds.items())
    return [
        f"command {command_id} ({kind.name}) is {state}" for command_id, kind, state in found if state not in kind.ends
    ]


def faults_of_effects(agent: str, kinds: Mapping[str, Kind], runs: Mapping[str, int]) -> list[str]:
    """Programs that ran twice, or never although they must."""
    expected = {command_id for command_id, kind in kinds.items() if kind.name in {"append", "long"}}
    faults = [f"{agent}: command {each} ran {count} times" for each, count in runs.items() if count > 1]
    return faults + [f"{agent}: command {each} has never run" for each in sorted(expected - runs.keys())]


def faults_of_readings(agent: str, numbers: AbstractSet[int], stored: Mapping[int, int]) -> list[str]:
    """Readings that are not stored, or more than once."""
    faults = [f"{agent}: reading {each} is not stored" for each in sorted(numbers - stored.keys())]
    return faults + [f"{agent}: reading {each} is stored {count} times" for each, count in stored.items() if count > 1]


def _ended(client: ServiceClient, device_id: str, kinds: Mapping[str, Kind], until_s: float) -> dict[str, str]:
    while True:
        records = client.device_commands(device_id).records
        states = {str(each.id): str(each.status) for each in records if str(each.id) in kinds}
        if time.monotonic() > until_s or (states.keys() >= kinds.keys() and set(states.values()) <= _ANY):
            return states
        time.sleep(_LOOK_S)


def _stored(client: ServiceClient, agent: SteadyAgent, numbers: AbstractSet[int], until_s: float) -> Counter[int]:
    while True:
        records = client.sensor_data(device_id=agent.device_id, keys=(_SEQUENCE,))
        stored = Counter(int(each.sensor_data[_SEQUENCE]) for each in records if _SEQUENCE in each.sensor_data)
        if numbers <= stored.keys() or time.monotonic() > until_s:
            return stored
        time.sleep(_LOOK_S)
