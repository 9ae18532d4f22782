"""Whoever has the service, the broker and the network, but no key: nothing of what they send is run."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.core.admission import setting_of
from agent.core.values import Command
from agent.errors import InvalidMessage
from agent.wire.encoding import encode_json, parse_object
from agent.wire.signed import SigningKey, parse_body, parse_envelope
from simulator.wire.qr import LabelText, encode_label
from tests.support.fakes import START_WALL_S
from tests.unit.agent.signing import PAYLOAD, Device, command_of, envelope, make_rules, sign, signed_bytes

Payload = dict[str, Any]

ATTACKS = 20_000
BATCH = 250

RAW = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = SigningKey(RAW)
SECOND = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
STRANGER_RAW = Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
STRANGER = SigningKey(STRANGER_RAW)

# Sent, and held back by the attacker: none of them has run, so their counters are fresh.
HELD = [sign(KEY, 1000), sign(KEY, 1001, command="ping"), sign(SECOND, 1000), sign(KEY, 1002, device_id="device-2")]


def every_single_byte(text: bytes, random_: random.Random, values: int) -> Iterator[bytes]:
    """Each byte of the text changed, to some other values each; the lowest bit always among them."""
    for position, byte in enumerate(text):
        others = {byte ^ 1, byte ^ 0x20, *random_.sample(range(256), values)} - {byte}
        for other in others:
            yield text[:position] + bytes([other]) + text[position + 1 :]


def cut_doubled_and_moved(text: bytes, random_: random.Random) -> Iterator[bytes]:
    for _ in range(400):
        start, end = sorted(random_.sample(range(len(text)), 2))
        yield text[:start] + text[end:]
        yield text[:end] + text[start:end] + text[end:]
        yield text[:start] + text[start:end][::-1] + text[end:]


def parsed(texts: Iterator[bytes], original: Payload) -> Iterator[Payload | None]:
    """The payloads that these texts are; None for one that the edge refuses already."""
    for text in texts:
        try:
            payload = parse_object(text)
        except InvalidMessage:
            yield None
            continue
        if payload != original:
            yield payload


def swaps() -> Iterator[Payload]:
    """Members of one envelope in another."""
    for one, other in itertools.permutations(HELD, 2):
        for names in itertools.chain.from_iterable(
            itertools.combinations(["key_id", "body", "signature"], n) for n in (1, 2)
        ):
            payload = copy.deepcopy(one)
            payload["signed_command"].update({name: other["signed_command"][name] for name in names})
            if payload not in HELD:
                yield payload


def changed_bodies(random_: random.Random) -> Iterator[Payload]:
    """The body says something else, or the same in other words; the signature is the old one."""
    held = HELD[0]["signed_command"]
    members = json.loads(held["body"])
    changes: list[Payload] = [
        {"expires_at": "2030-01-01T00:00:00.000Z"},
        {"device_id": "device-2"},
        {"id": "other"},
        {"command_payload": {**PAYLOAD, "door": 4}},
        {"more": 1},
        *({"counter": random_.randrange(1, 2**63)} for _ in range(200)),
    ]
    texts = [json.dumps({**members, **change}, separators=(",", ":")) for change in changes]
    texts += [json.dumps(members), json.dumps(members, indent=1), json.dumps(members, sort_keys=True)]
    texts += [held["body"] + " ", " " + held["body"], held["body"] * 2]
    for text in texts:
        yield {"signed_command": {**held, "body": text}}


def strangers() -> Iterator[Payload]:
    """Signed by a key that nobody trusts, under its own id and under the trusted one's."""
    for counter in range(2000, 2100):
        own = sign(STRANGER, counter)
        yield own
        body = own["signed_command"]["body"].encode()
        yield envelope(KEY.key_id, body, STRANGER_RAW.sign(signed_bytes(KEY.key_id, body)))


def signatures_for_something_else() -> Iterator[Payload]:
    """The trusted key itself signed these bytes, but not as a command."""
    body = HELD[0]["signed_command"]["body"].encode()
    label = encode_label(LabelText("product-1", "SN-1")).encode()
    messages = [
        body,
        label,
        KEY.key_id.encode() + b"\0" + body,
        b"device-agent label v1\0" + body,
        signed_bytes("", body),
        signed_bytes(SECOND.key_id, body),
        signed_bytes(KEY.key_id, body).replace(b" v1\0", b" v2\0"),
        signed_bytes(KEY.key_id, b"") + b"\0" + body,
    ]
    for message, text in itertools.product(messages, (body, label)):
        yield envelope(KEY.key_id, text, RAW.sign(message))


def unsigned() -> Iterator[Payload]:
    held = HELD[0]["signed_command"]
    yield PAYLOAD
    yield json.loads(held["body"])
    yield json.loads(held["body"])["command_payload"]
    for extra in ({"command": "open_door"}, {"command_payload": PAYLOAD}):
        yield {**HELD[0], **extra}
        yield {"signed_command": {**held, **extra}}
    for empty in (None, [], "", 0, {}, held["body"], [held]):
        yield {"signed_command": empty, "command": "open_door"}
        yield {"signed_command": empty}
    for name in ("Signed_command", "signed_command ", "signed-command"):
        yield {name: held, "command": "open_door", "door": 3}


def out_of_time() -> Iterator[Payload]:
    for lifetime_s in (0, -1, -3600, 86_400 * 3, 86_400 * 3650):
        yield sign(KEY, 3000, lifetime_s=lifetime_s)


def mutations(random_: random.Random) -> Iterator[tuple[str, Iterable[Payload | None]]]:
    """What an attacker makes of what was held back, by the kind of attack."""
    for number, original in enumerate(HELD[:3]):
        text = encode_json(original)
        yield "single byte", parsed(every_single_byte(text, random_, 10 - number), original)
        yield "cut, doubled, moved", parsed(cut_doubled_and_moved(text, random_), original)
    yield "swaps", swaps()
    yield "changed bodies", changed_bodies(random_)
    yield "strangers", strangers()
    yield "for something else", signatures_for_something_else()
    yield "unsigned", unsigned()
    yield "other device", [HELD[3]]


@pytest.fixture
def device():
    return Device(make_rules(KEY, SECOND))


class Siege:
    """Attacks on one device, delivered in lists; what runs beside ``expected`` fails the test."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.expected: list[str] = []
        self.tried: Counter[str] = Counter()
        self._batch: list[Command] = []

    def attack(self, name: str, payloads: Iterable[Payload | None]) -> None:
        for payload in payloads:
            self.tried[name] += 1
            if payload is not None:  # else the edge refused it
                self._batch.append(command_of(payload))
            if len(self._batch) >= BATCH:
                self.deliver()

    def deliver(self) -> None:
        self.device.take(self._batch)
        self._batch.clear()
        assert self.device.ran == self.expected

    def run(self, payload: Payload) -> None:
        """A true command, which must run."""
        command = command_of(payload)
        self.expected.append(command.id)
        self.device.take([command])
        assert self.device.ran == self.expected


def test_of_twenty_thousand_mutated_and_replayed_commands_none_is_run(device):
    random_ = random.Random(20_000)
    siege = Siege(device)

    # 1. What runs once, so that it can be replayed.
    spent = [sign(KEY, counter) for counter in range(1, 41)] + [sign(SECOND, counter) for counter in range(1, 11)]
    for payload in spent:
        siege.run(payload)

    # 2. Mutations of commands that were held back: their counters are fresh, so nothing but the signature refuses them.
    for name, payloads in mutations(random_):
        siege.attack(name, payloads)
    siege.deliver()
    assert device.store.journal.setting(setting_of(KEY.key_id)) == "40"

    # 3. Replays under new ids, over restarts, with the time known, unknown and wrong.
    while siege.tried.total() < ATTACKS:
        for now_s in (START_WALL_S, None, 10.0, START_WALL_S - 14 * 86_400, START_WALL_S + 50 * 365 * 86_400):
            device.now_s = now_s
            siege.attack("replays", random_.sample(spent, 40))
            siege.deliver()
        device.restart()

    # 4. Expiry, and counters that go back. These use their counters up, so they come last.
    device.now_s = START_WALL_S
    siege.attack("out of time", out_of_time())
    siege.attack("counter rolled back", [sign(KEY, n, command="ping") for n in random_.sample(range(1, 3001), 300)])
    siege.deliver()

    assert siege.tried.total() >= ATTACKS
    assert len(siege.tried) == 11, siege.tried
    reasons = {text.split(":")[0] for text in device.told.values()}
    assert {"signature_invalid", "signature_malformed", "signature_replayed", "signature_required"} <= reasons
    # None of it was in the way of the true ones.
    siege.run(HELD[2])
    siege.run(sign(KEY, 3001))


def test_the_attacks_are_attacks_since_a_device_that_checks_nothing_runs_them():
    """The test of the test: without the signature's check, mutated commands do run."""

    def believe(payload: Payload):
        found = parse_envelope(payload)
        return parse_body(found.key_id, found.body)

    rules = make_rules(KEY, SECOND)
    gullible = dataclasses.replace(rules, signatures=dataclasses.replace(rules.signatures, open=believe))
    device = Device(gullible)
    _, payloads = next(mutations(random.Random(1)))
    device.take([command_of(payload) for payload in itertools.islice(payloads, 2000) if payload is not None])
    assert device.ran
