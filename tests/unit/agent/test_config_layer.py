"""The layer over the local file: merging and precedence."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load_config
from agent.config.load import FOLDER, LAYER, changed_keys, merge


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        "service: {base_url: 'https://api.example.com'}\ndevice: {device_id: d1}\n"
        f"auth: {{allow_secret_key_on_device: true}}\nstate_dir: '{tmp_path}'\n"
        "commands: {poll: {idle_s: 40}}\nsensors: [{name: board, type: system}]\n"
    )
    return path


def lay(tmp_path: Path, text: str, name: str = LAYER) -> None:
    (tmp_path / FOLDER).mkdir(exist_ok=True)
    (tmp_path / FOLDER / name).write_text(text)


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        # Of RFC 7396, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_is_the_one_of_the_rfc(target, patch, merged):
    assert merge(target, patch) == merged


class TestPrecedence:
    def test_the_file_goes_before_the_default_the_layer_before_the_file_the_environment_before_all(
        self, config, tmp_path
    ):
        assert load_config(config, {}).config.commands.poll.idle_s == 40
        lay(tmp_path, "commands: {poll: {idle_s: 50}}\n")
        loaded = load_config(config, {})
        assert loaded.config.commands.poll.idle_s == 50
        assert loaded.layer_fault == ""
        assert load_config(config, {"DEVICE_AGENT_COMMANDS__POLL__IDLE_S": "55"}).config.commands.poll.idle_s == 55

    def test_the_layer_is_found_where_the_environment_put_the_state(self, config, tmp_path):
        text = config.read_text().replace(f"state_dir: '{tmp_path}'\n", "")
        config.write_text(text)
        lay(tmp_path, "logging: {level: error}\n")
        assert load_config(config, {"DEVICE_AGENT_STATE_DIR": str(tmp_path)}).config.logging.level == "error"

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("commands: {poll: {idle_s: never}}", "commands.poll.idle_s (from update_config)"),
            ("auth: {mode: bearer}", "auth: only the local file may set it"),
            ("- a list", "must hold sections"),
            ("a: [", "line 1"),
        ],
    )
    def test_a_layer_that_cannot_be_used_does_not_count_and_is_told(self, config, tmp_path, text, word):
        lay(tmp_path, text)
        loaded = load_config(config, {})
        assert loaded.config.commands.poll.idle_s == 40
        assert word in loaded.layer_fault


class TestChanges:
    def test_sensors_are_compared_by_name(self, config):
        text = config.read_text()
        old = load_config(config, {}).config
        config.write_text(
            text.replace(
                "[{name: board, type: system}]",
                "[{name: b2, type: system}, {name: board, type: system, interval_s: 5, report: {when: change}}]",
            )
        )
        new = load_config(config, {}).config
        assert changed_keys(old, new) == [
            ("sensors", "b2"),
            ("sensors", "board", "interval_s"),
            ("sensors", "board", "report", "when"),
        ]
