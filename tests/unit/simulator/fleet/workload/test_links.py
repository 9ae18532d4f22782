from __future__ import annotations

from dataclasses import dataclass, field

from simulator.fleet.device.links import Links
from simulator.fleet.engine.ports import Caller
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import OutcomeClass
from tests.fleet_faults import read_fault
from tests.virtual_clock import VirtualClock

HEAD = (
    b"POST /sensor-data HTTP/1.1\r\nhost: x\r\nx-api-key: mk_1\r\nx-secret-key: msk_secret\r\n"
    b"content-length: 2\r\n\r\n{}"
)


@dataclass
class FakeEngine:
    """Answers each request after 20 ms of virtual time."""

    clock: VirtualClock
    sent: list[tuple[float, int, bytes]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        del timeout_s
        sent_s = self.clock.time()
        self.sent.append((sent_s, device, message))

        def answer() -> None:
            if device not in self.gone:
                caller.answered(201, [], b"{}", sent_s, self.clock.time())

        self.clock.call_at(sent_s + 0.02, answer)

    def cut(self, device: int) -> None:
        self.gone.add(device)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Witness:
    """Who sent a request."""

    clock: VirtualClock
    ends: list[tuple[object, ...]] = field(default_factory=list)
    is_wanted: bool = True

    def answered(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, sent_s: float, now_s: float
    ) -> None:
        del headers, body
        self.ends.append((status, round(sent_s, 3), round(now_s, 3)))

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        self.ends.append((outcome, reason, sent_s, round(now_s, 3)))


class World:
    def __init__(self, *faults: dict[str, object]) -> None:
        self.clock = VirtualClock()
        self.engine = FakeEngine(self.clock)
        self.links = Links(self.engine, self.clock, Wheel(self.clock), seed=1)
        self.links.faults = ActiveFaults(0.0, 0.0, map(read_fault, faults))

    def send(self, device: int = 0, timeout_s: float = 5.0) -> Witness:
        witness = Witness(self.clock)
        self.links.send(device, HEAD, witness, timeout_s)
        return witness

    def ends(self, **given: float) -> list[tuple[object, ...]]:
        witness = self.send(**given)  # type: ignore[arg-type]
        self.clock.run_until(self.clock.time() + 10)
        return witness.ends


def test_a_lost_link_ends_what_is_under_way_refuses_what_is_new_and_can_be_restored():
    world = World()
    under_way = world.send()
    world.clock.run_until(0.01)
    world.links.lose(0)
    refused = world.send()
    world.clock.run_until(1.0)
    assert under_way.ends == [(OutcomeClass.TRANSPORT, "the link is down", 0.01, 0.01)]
    assert refused.ends == [(OutcomeClass.TRANSPORT, "the link is down", None, 0.01)]
    assert world.send(device=1).ends == []
    world.links.lose(0)  # a second cause
    world.links.restore(0)
    assert world.links.down == 1
    world.links.restore(0)
    world.engine.gone.clear()
    assert world.ends()[0][0] == 201


def test_a_power_cut_forgets_what_is_under_way():
    world = World()
    witness = world.send()
    world.links.cut(0)
    world.clock.run_until(10)
    assert witness.ends == []


def test_revoked_keys_go_out_and_only_the_secret_is_another_one():
    world = World({"kind": "revoked_keys", "at_s": 0, "duration_s": 60})
    world.ends()
    ((_, _, message),) = world.engine.sent
    assert b"msk_secret" not in message
    assert message.replace(b"msk_not_the_one", b"msk_secret") == HEAD


def test_a_connection_that_dies_of_a_bad_link_leaves_its_request_without_an_answer_and_other_requests_live():
    world = World({"kind": "link_profile", "profile": "bad_wifi", "at_s": 0, "duration_s": 6000})
    ends = [world.ends()[0] for _ in range(400)]
    lost = [end for end in ends if end[0] is OutcomeClass.TIMEOUT]
    assert 0 < len(lost) < 20
    assert {end[1] for end in lost} == {"no answer within 5 s"}
    assert len(world.engine.sent) == len(ends) - len(lost)
