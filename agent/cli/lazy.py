"""A group of commands that imports each one only when it is asked for, and names the variables of its options.

Each command that root types takes the identity of whom the folders belong to that it works in, before it opens
anything there (:mod:`agent.identity`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.errors import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, ConfigurationError
from agent.identity import refuse_odd_files, take_identity
from agent.text import bounded, disk_refusal

_WAITS_FOR_DISKS: Final = "run"
_ACTS_FOR_OWNERS: Final = "acts_for_owners"
_IS_GUARDED: Final = "is_guarded"

Function = TypeVar("Function", bound=Callable[..., Any])


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for: ``run`` stays small on a small device.

    Args:
        lazy: name -> ``module:attribute`` of the command.
        state_dir: the state directory that a configuration file names.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str], state_dir: Callable[[Path], Path], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy
        self._state_dir = state_dir

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, sorted."""
        del ctx
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; each of its options has a variable that is called as itself."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        self._guard(found)
        if ctx is not None and ctx.auto_envvar_prefix:
            name_variables(found, f"{ctx.auto_envvar_prefix}_{cmd_name}")
        return found

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program as click does; its error messages are cut to a bounded length, since they quote arguments."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except click.Abort:
            click.echo("Aborted!", err=True)
            code = EXIT_CHECK_FAILED
        except click.ClickException as error:
            error.message = bounded(error.message)  # type: ignore[misc]  # final in click
            error.show()
            code = error.exit_code
        sys.exit(code)

    def _guard(self, command: click.Command) -> None:
        """Let a command, and all that are in it, begin with the identity of whom its folders belong to.

        A wrong configuration ends it with code 2, each fault on a line of its own, and so does a disk that takes or
        gives nothing.
        """
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            self._guard(inner)
        callback = command.callback
        if callback is None or isinstance(command, click.Group) or hasattr(callback, _IS_GUARDED):
            return

        @functools.wraps(callback)
        def guarded(*args: Any, **values: Any) -> Any:
            try:
                if os.geteuid() == 0 and not hasattr(callback, _ACTS_FOR_OWNERS):
                    self._take_identity(command, values)
                return callback(*args, **values)
            except ConfigurationError as error:
                text = str(error)
            except OSError as error:
                refusal = None if command.name == _WAITS_FOR_DISKS else disk_refusal(error)
                if refusal is None:
                    raise
                text = f"{click.get_current_context().command_path}: {refusal}"
            sys.stderr.write(bounded(f"{text}\n"))
            raise SystemExit(EXIT_CONFIGURATION)

        setattr(guarded, _IS_GUARDED, True)
        command.callback = guarded

    def _take_identity(self, command: click.Command, values: Mapping[str, Any]) -> None:
        config_path = values.get("config_path")
        if config_path is not None:
            took = take_identity(config_path)
            folder = self._state_dir(config_path)
            if take_identity(folder) or took:
                refuse_odd_files(folder)
                return
        for option in command.params:
            # The state directory that ``init`` is given is only written down.
            if not isinstance(option.type, click.Path) or option.name in {"config_path", "state_dir"}:
                continue
            given = values.get(option.name or "")
            if option.type.dir_okay and isinstance(given, Path) and take_identity(given):
                return


def acts_for_owners(callback: Function) -> Function:
    """Mark the function of a command whose files belong to several users, so that root stays root.

    It must open each one through :func:`agent.identity.as_owner_of`.
    """
    setattr(callback, _ACTS_FOR_OWNERS, True)
    return callback


def name_variables(command: click.Command, prefix: str) -> None:
    """Let every option of a command, and of those in it, be set by the variable that is called as the option.

    A name of its own, from ``envvar=``, works behind it.

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
        own = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
        option.envvar = list(dict.fromkeys([proper, *own]))
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        name_variables(inner, f"{words}_{name}")
