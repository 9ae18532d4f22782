"""What the small built-in handlers ask of the agent, and what they make of its answers."""

from __future__ import annotations

import base64

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.basic import Cancel, ReadSensors, SetInterval
from agent.handlers.maintenance import INLINE_BYTES, CollectDiagnostics


def test_read_sensors_answers_readings_and_fails_only_when_none_could_be_read(make_context):
    def read(**payload):
        return ReadSensors().handle(ReadSensors.Payload(**payload), make_context())

    board = {"board": {"cpu_temperature_c": 48.5}}
    assert read() == {"readings": board, "errors": {"boiler": "no answer within 10 s"}}
    assert read(names=["board"]) == {"readings": board, "errors": {}}
    with pytest.raises(HandlerFailed, match="sensors_unreadable: boiler: no answer within 10 s"):
        read(names=["boiler"])
    with pytest.raises(HandlerRejected, match="unknown_sensor: this device has no sensor named 'cellar'"):
        read(names=["cellar"])


def test_set_interval_answers_what_is_in_force_and_rejects_what_cannot_be(make_context):
    def put(name, interval_s):
        return SetInterval().handle(SetInterval.Payload(name=name, interval_s=interval_s), make_context())

    assert put("board", 5) == {"name": "board", "interval_s": 5.0}
    with pytest.raises(HandlerRejected, match="unknown_name: this device has no interval named 'cellar'"):
        put("cellar", 5)
    with pytest.raises(HandlerRejected, match="interval_out_of_bounds: an interval is at least 1 s"):
        put("board", 0.5)


def test_a_bundle_comes_along_when_it_is_asked_for_and_fits(make_context, controls, tmp_path):
    path = tmp_path / "bundle"
    path.write_bytes(b"x" * INLINE_BYTES)
    controls.bundle = {"path": str(path), "size_bytes": INLINE_BYTES}
    handler = CollectDiagnostics()
    result = handler.handle(CollectDiagnostics.Payload(inline=True), make_context())
    assert base64.b64decode(result["base64"]) == path.read_bytes()
    assert len(str(result)) < 64 * 1024
    assert "base64" not in handler.handle(CollectDiagnostics.Payload(), make_context())
    controls.bundle["size_bytes"] += 1
    result = handler.handle(CollectDiagnostics.Payload(inline=True), make_context())
    assert "fetch the file" in result["not_inline"]


def test_a_cancel_does_not_cancel_itself(make_context):
    with pytest.raises(HandlerRejected, match="cannot_cancel_itself"):
        Cancel().handle(Cancel.Payload(command_id="command-1"), make_context())
