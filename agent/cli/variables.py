"""Environment variables of options: each is called as its option."""

from __future__ import annotations

import click


def name_variables(command: click.Command, prefix: str) -> None:
    """Let every option of a command, and of those in it, be set by the variable that is called as the option.

    Names that an option had before, from ``envvar=`` or from the parameter's name in the code, still work behind it.

    Args:
        command: of any depth.
        prefix: the program's and the command's words, such as ``FLEET_SIMULATOR_LABELS``.
    """
    words = prefix.replace("-", "_").upper()
    for option in command.params:
        long = next((one for one in option.opts if one.startswith("--")), "")
        if not isinstance(option, click.Option) or not long:
            continue
        option.show_envvar = True
        proper = f"{words}_{long[2:].replace('-', '_').upper()}"
        before = option.envvar or f"{words}_{(option.name or '').upper()}"
        names = dict.fromkeys([proper, *([before] if isinstance(before, str) else before)])
        option.envvar = proper if len(names) == 1 else list(names)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        name_variables(inner, f"{words}_{name}")
