"""What the programs say about input that is far too long: short, in one line, with the documented exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import agent.cli
import gateway.cli
from agent.cli.program import device_agent
from gateway.cli import device_gateway
from simulator.cli import main, program

STARTS = {"device-agent": agent.cli.main, "device-gateway": gateway.cli.main, "fleet-simulator": main}
LONG = "a" * 100_000
SHOWN_MAX = 3000
"""Characters on both outputs together: the usage, and a message with one cut word."""
CALLS = [
    ("device-agent", [LONG]),
    ("device-agent", [f"--{LONG}"]),
    ("device-agent", ["check", "--config", LONG]),
    ("device-agent", ["check", "--config", "key.yaml"]),
    ("device-agent", ["check", "--config", "value.yaml"]),
    ("device-agent", ["status", "--config", "key.yaml"]),
    ("fleet-simulator", [LONG]),
    ("fleet-simulator", ["run", LONG]),
    ("fleet-simulator", ["plan", "long.yaml"]),
    ("device-gateway", [LONG]),
    ("device-gateway", ["init", "--base-url", LONG]),
    ("device-gateway", ["check", "--config", "key.yaml"]),
    ("device-gateway", ["devices", "add", "--device-id", LONG, "--config", "key.yaml"]),
]


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


def typed_options() -> Iterator[tuple[str, list[str]]]:
    """Every option whose values click itself looks at, in every command."""
    for name, group in zip(STARTS, (device_agent, device_gateway, program), strict=True):
        for words, command in leaves(group):
            for option in command.params:
                is_text = isinstance(option.type, click.types.StringParamType | click.Path | click.types.FuncParamType)
                if isinstance(option, click.Option) and not option.is_flag and not is_text:
                    yield name, [*words, option.opts[-1], LONG]


@pytest.fixture(name="said")
def _said(capsys, monkeypatch, tmp_path):
    """Run one of the programs in a folder with files that hold long things; exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    Path("long.yaml").write_text(f"{LONG}: 1\n")
    Path("key.yaml").write_text(f"{LONG}: 1\n")
    Path("value.yaml").write_text(f"service: {{base_url: {LONG}}}\n")

    def run(name: str, words: list[str]) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", [name, *words])
        with pytest.raises(SystemExit) as end:
            STARTS[name]()
        told = capsys.readouterr()
        return end.value.code, told.out + told.err

    return run


def short(words: list[str]) -> str:
    return " ".join(word[:24] for word in words)


@pytest.mark.parametrize(("name", "words"), CALLS, ids=lambda value: value if isinstance(value, str) else short(value))
def test_a_program_cuts_long_input_in_its_messages(name, words, said):
    code, text = said(name, words)
    assert code == 2, text[:500]
    assert "Traceback" not in text
    assert 20 < len(text) < SHOWN_MAX


def test_every_option_that_is_no_text_cuts_a_long_value(said):
    wrong = []
    options = list(typed_options())
    assert len(options) > 40
    for name, words in options:
        code, text = said(name, words)
        if code != 2 or not 20 < len(text) < SHOWN_MAX:
            wrong.append((name, short(words), code, len(text), text[:200]))
    assert not wrong
