"""The handlers that mend the agent, without an agent."""

from __future__ import annotations

import base64

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.built_in.collect_diagnostics import INLINE_BYTES, CollectDiagnostics
from agent.handlers.built_in.log_level import LogLevel
from agent.handlers.built_in.update_config import DEFAULT_ALLOW, UpdateConfig
from agent.handlers.payloads import read_payload


def judged(handler, **payload):
    return read_payload(handler, payload)


class TestUpdateConfig:
    def test_without_settings_little_may_change(self, make_context, controls):
        handler = UpdateConfig()
        handler.handle(judged(handler, config={}), make_context())
        assert controls.upkeep.changes[0].allow == DEFAULT_ALLOW
        assert not {"service", "auth", "executables", "commands"} & set(DEFAULT_ALLOW)

    def test_a_refusal_rejects_the_command(self, make_context, controls):
        controls.upkeep.refusal = HandlerRejected("not_allowed", "no")
        handler = UpdateConfig()
        with pytest.raises(HandlerRejected) as caught:
            handler.handle(judged(handler, config={}), make_context())
        assert caught.value.code == "not_allowed"

    def test_a_run_after_a_restart_means_that_no_trial_ever_began(self, make_context, controls):
        handler = UpdateConfig()
        with pytest.raises(HandlerFailed, match="interrupted"):
            handler.handle(judged(handler, config={}), make_context(restarted=True, attempt=2))
        assert controls.upkeep.changes == []


class TestLogLevel:
    def test_it_sets_the_level_for_ten_minutes_unless_told_otherwise(self, make_context, controls):
        handler = LogLevel()
        handler.handle(judged(handler, level="debug"), make_context())
        handler.handle(judged(handler, level="error", for_s=5, logger="agent.core"), make_context())
        assert controls.upkeep.levels == [("debug", 600.0, ""), ("error", 5.0, "agent.core")]

    def test_a_refusal_rejects_the_command(self, make_context, controls):
        controls.upkeep.refusal = HandlerRejected("not_allowed", "no")
        with pytest.raises(HandlerRejected):
            LogLevel().handle(judged(LogLevel(), level="debug", logger="httpx"), make_context())


class TestCollectDiagnostics:
    def test_the_file_comes_along_when_it_is_asked_for_and_fits(self, make_context, controls, tmp_path):
        path = tmp_path / "bundle"
        path.write_bytes(b"x" * INLINE_BYTES)
        controls.upkeep.bundle = {"path": str(path), "size_bytes": INLINE_BYTES}
        handler = CollectDiagnostics()
        result = handler.handle(judged(handler, inline=True), make_context())
        assert base64.b64decode(result["base64"]) == path.read_bytes()
        assert len(str(result)) < 64 * 1024
        assert "base64" not in handler.handle(judged(handler), make_context())

    def test_one_that_is_too_large_for_a_result_says_so(self, make_context, controls):
        controls.upkeep.bundle = {"path": "/x", "size_bytes": INLINE_BYTES + 1}
        handler = CollectDiagnostics(CollectDiagnostics.Settings(keep=1, max_bytes=20000))
        result = handler.handle(judged(handler, inline=True), make_context())
        assert "fetch the file" in result["not_inline"]
        assert controls.upkeep.bundles[0].keep == 1
