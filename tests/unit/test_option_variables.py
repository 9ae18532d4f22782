"""Every option of every command can come from the environment variable that is called as the option."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from agent.cli.program import device_agent
from gateway.cli.program import device_gateway
from simulator.cli import program

Found = tuple[tuple[str, ...], click.Option, click.Context]
FORMER = {
    "FLEET_SIMULATOR_COMMAND_SEND_AS_JSON": ("command", "send", "--json"),
    "FLEET_SIMULATOR_COMMAND_SEND_DEVICE_ID": ("command", "send", "--device"),
    "FLEET_SIMULATOR_HOST": ("service", "--host"),
    "FLEET_SIMULATOR_TRUSTED_PROXIES": ("service", "--trusted-proxy"),
    "FLEET_SIMULATOR_INIT_STARTER": ("init", "--from"),
    "FLEET_SIMULATOR_LABELS_MAKE_DEVICES": ("labels", "make", "--from"),
    "FLEET_SIMULATOR_PLAN_AS_JSON": ("plan", "--json"),
    "FLEET_SIMULATOR_RUN_FORMATS": ("run", "--export"),
    "FLEET_SIMULATOR_RUN_OWNED": ("run", "--i-own-this-target"),
}
"""Some of the names that stood in docs/commands.md before."""


def options_below(group: click.Group, context: click.Context, words: tuple[str, ...] = ()) -> Iterator[Found]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        for option in command.params:
            if isinstance(option, click.Option):
                yield (*words, name), option, inner
        if isinstance(command, click.Group):
            yield from options_below(command, inner, (*words, name))


def long_name(option: click.Option) -> str:
    return next(one for one in option.opts if one.startswith("--"))


def found_in(group: click.Group, **settings: str) -> list[Found]:
    return list(options_below(group, click.Context(group, **settings)))


def of_the_simulator() -> list[Found]:
    return found_in(program, auto_envvar_prefix="FLEET_SIMULATOR")


def value_with(option: click.Option, context: click.Context, monkeypatch, variable: str, value: str) -> object:
    with monkeypatch.context() as patch:
        patch.setenv(variable, value)
        return option.resolve_envvar_value(context)


def test_every_option_of_the_simulator_takes_its_value_from_the_variable_that_is_called_so(monkeypatch):
    found = of_the_simulator()
    assert len(found) > 250
    for words, option, context in found:
        variable = "_".join(["FLEET_SIMULATOR", *words, long_name(option)[2:]]).replace("-", "_").upper()
        assert value_with(option, context, monkeypatch, variable, "value") == "value", (variable, option.envvar)
        shown = option.envvar if isinstance(option.envvar, str) else (option.envvar or [""])[0]
        assert shown == variable, "docs/commands.md shows the first"
        assert option.show_envvar


def test_every_option_of_the_gateway_takes_its_value_from_the_variable_that_is_called_so(monkeypatch):
    own = found_in(device_gateway, auto_envvar_prefix="DEVICE_GATEWAY")
    assert len(own) > 40
    for words, option, context in own:
        variable = "_".join(["DEVICE_GATEWAY", *words, long_name(option)[2:]]).replace("-", "_").upper()
        assert value_with(option, context, monkeypatch, variable, "value") == "value", (variable, option.envvar)


def test_every_option_of_the_agent_is_set_by_its_name_or_by_the_key_of_the_configuration_that_it_is(monkeypatch):
    own = found_in(device_agent)
    assert len(own) > 20
    for words, option, context in own:
        assert isinstance(option.envvar, str), (words, option.name)
        name = long_name(option)[2:].replace("-", "_").upper()
        assert option.envvar == f"DEVICE_AGENT_{name}" or option.envvar.endswith(f"__{name}"), (words, option.envvar)
        assert value_with(option, context, monkeypatch, option.envvar, "value") == "value"


@pytest.mark.parametrize("variable", FORMER)
def test_a_name_that_an_option_had_before_still_works_behind_the_new_one(variable, monkeypatch):
    *words, name = FORMER[variable]
    option, context = next(
        (option, context)
        for path, option, context in of_the_simulator()
        if path == tuple(words) and long_name(option) == name
    )
    assert value_with(option, context, monkeypatch, variable, "former") == "former"
    proper = "_".join(["FLEET_SIMULATOR", *words, name[2:]]).replace("-", "_").upper()
    monkeypatch.setenv(proper, "proper")
    assert value_with(option, context, monkeypatch, variable, "former") == "proper"


def test_no_variable_sets_two_options_of_different_commands_by_accident():
    taken: dict[str, str] = {}
    for words, option, _ in of_the_simulator():
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        for variable in names:
            own = f"{' '.join(words)} {long_name(option)}"
            assert taken.setdefault(variable, own) == own, variable
