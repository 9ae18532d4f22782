"""The handlers that mend the agent, without an agent."""

from __future__ import annotations

import base64

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.built_in.collect_diagnostics import INLINE_BYTES, CollectDiagnostics
from agent.handlers.built_in.log_level import LogLevel
from agent.handlers.built_in.update_config import DEFAULT_ALLOW, UpdateConfig
from agent.handlers.loaded import InvalidPayload, LoadedHandler
from agent.handlers.upkeep import UpkeepRefused


def judged(handler, **payload):
    loaded = LoadedHandler(handler.name, handler, handler.contract, handler.timeout_s, handler.name)
    return loaded.validate(payload)


class TestUpdateConfig:
    def test_it_hands_over_what_the_command_and_the_settings_say(self, make_context, controls):
        handler = UpdateConfig(UpdateConfig.Settings(allow=("sensors",), probation_s=9, max_starts=2))
        payload = judged(handler, config="logging: {level: debug}", base_sha256="a" * 64)
        assert handler.handle(payload, make_context(command_id="c7")) is None
        [change] = controls.upkeep.changes
        assert (change.command_id, change.config, change.patch) == ("c7", "logging: {level: debug}", None)
        assert (change.allow, change.probation_s, change.max_starts) == (("sensors",), 9, 2)

    def test_without_settings_little_may_change(self, make_context, controls):
        handler = UpdateConfig()
        handler.handle(judged(handler, patch={}), make_context())
        assert controls.upkeep.changes[0].allow == DEFAULT_ALLOW
        assert not {"service", "auth", "executables", "commands"} & set(DEFAULT_ALLOW)

    @pytest.mark.parametrize("payload", [{}, {"config": {}, "patch": {}}, {"patch": []}, {"config": {}, "base": "x"}])
    def test_a_payload_has_the_whole_or_the_change(self, payload):
        assert isinstance(judged(UpdateConfig(), **payload), InvalidPayload)

    def test_a_refusal_rejects_the_command(self, make_context, controls):
        controls.upkeep.refusal = UpkeepRefused("not_allowed", "no")
        handler = UpdateConfig()
        with pytest.raises(HandlerRejected) as caught:
            handler.handle(judged(handler, patch={}), make_context())
        assert caught.value.code == "not_allowed"

    def test_a_run_after_a_restart_means_that_no_trial_ever_began(self, make_context, controls):
        handler = UpdateConfig()
        with pytest.raises(HandlerFailed, match="interrupted"):
            handler.handle(judged(handler, patch={}), make_context(restarted=True, attempt=2))
        assert controls.upkeep.changes == []


class TestLogLevel:
    def test_it_sets_the_level_for_ten_minutes_unless_told_otherwise(self, make_context, controls):
        handler = LogLevel()
        handler.handle(judged(handler, level="debug"), make_context())
        handler.handle(judged(handler, level="error", for_s=5, logger="agent.core"), make_context())
        assert controls.upkeep.levels == [("debug", 600.0, ""), ("error", 5.0, "agent.core")]

    @pytest.mark.parametrize(
        "payload", [{}, {"level": "trace"}, {"level": "info", "for_s": -1}, {"level": "info", "logger": "a b"}]
    )
    def test_what_is_no_level_time_or_logger(self, payload):
        assert isinstance(judged(LogLevel(), **payload), InvalidPayload)

    def test_a_refusal_rejects_the_command(self, make_context, controls):
        controls.upkeep.refusal = UpkeepRefused("not_allowed", "no")
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
        handler = CollectDiagnostics(CollectDiagnostics.Settings(keep=1, max_age_s=60, max_bytes=20000))
        result = handler.handle(judged(handler, inline=True), make_context())
        assert "fetch the file" in result["not_inline"]
        assert controls.upkeep.bundles[0].keep == 1

    def test_one_that_could_not_be_written_fails_the_command(self, make_context, controls):
        controls.upkeep.refusal = UpkeepRefused("not_written", "full")
        with pytest.raises(HandlerFailed, match="not_written"):
            CollectDiagnostics().handle(judged(CollectDiagnostics()), make_context())
