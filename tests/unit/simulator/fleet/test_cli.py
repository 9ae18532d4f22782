from __future__ import annotations

import subprocess
import sys

import click
import pytest

from agent.errors import ConfigurationError, StorageError, TransportError, UnexpectedAnswer
from simulator.cli import COMMANDS, main, program
from simulator.exit_codes import ExitCode, exit_code_of


def options_of(command: click.Command, path: str) -> list[tuple[str, click.Option]]:
    found = [(path, option) for option in command.params if isinstance(option, click.Option)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += options_of(inner, f"{path} {name}")
    return found


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_there_has_help_and_shows_its_environment_variables(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "Usage: fleet-simulator" in capsys.readouterr().out
    command = program.get_command(click.Context(program), name)
    assert command is not None
    assert command.help
    for path, option in options_of(command, name):
        if option.name == "help":
            continue
        assert option.show_envvar, f"{path} {option.opts}"
        assert option.help or option.prompt or option.opts, f"{path} {option.opts}"


def test_the_overview_imports_no_command():
    code = (
        "import sys; from simulator.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in {'fastapi', 'uvicorn', 'jinja2', 'httpx'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("[]\n")
    assert "The whole story" in done.stdout


@pytest.mark.parametrize(("arguments", "code"), [(["nothing"], 2), (["demo", "--devices", "0"], 2), (["--version"], 0)])
def test_usage_ends_with_the_exit_codes_of_the_manual(arguments, code, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_option_comes_from_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("FLEET_SIMULATOR_DEMO_DEVICES", "0")
    with pytest.raises(SystemExit) as ended:
        main(["demo"])
    assert ended.value.code == 2
    assert "--devices" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError(["x"]), ExitCode.USAGE),
        (TransportError("x"), ExitCode.UNREACHABLE),
        (StorageError("x"), ExitCode.UNREACHABLE),
        (UnexpectedAnswer("x"), ExitCode.UNREACHABLE),
    ],
)
def test_an_error_that_nobody_handled_has_its_exit_code(error, code):
    assert exit_code_of(error) is code
