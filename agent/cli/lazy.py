"""A group of commands that imports each one only when it is asked for, and names the variables of its options.

Each command that root types takes the identity of whom the folders belong to that it works in, before it opens
anything there (:mod:`agent.process.identity`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.error_text import bounded, disk_refusal
from agent.exit_codes import EXIT_CONFIGURATION

_KNOW_DISKS: Final = frozenset({"run"})
"""Commands that wait for a disk instead of ending."""
_ACTS_FOR_OWNERS: Final = "acts_for_owners"
_TAKES_IDENTITY: Final = "takes_identity"

Function = TypeVar("Function", bound=Callable[..., Any])


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for: ``run`` stays small on a small device.

    Args:
        lazy: name -> ``module:attribute`` of the command.
        state_dir: the state directory that a configuration file names.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, str],
        state_dir: Callable[[Path], Path],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy
        self._state_dir = state_dir

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, sorted."""
        del ctx
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; in a group with a prefix for variables each option has one called as itself."""
        target = self._lazy.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        self._guard(found)
        if ctx is not None and ctx.auto_envvar_prefix:
            name_variables(found, f"{ctx.auto_envvar_prefix}_{cmd_name}")
        return found

    def _guard(self, command: click.Command) -> None:
        """Let a command, and all that are in it, begin with the identity of whom its folders belong to."""
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            self._guard(inner)
        callback = command.callback
        if callback is None or hasattr(callback, _ACTS_FOR_OWNERS) or hasattr(callback, _TAKES_IDENTITY):
            return

        @functools.wraps(callback)
        def guarded(*args: Any, **values: Any) -> Any:
            if os.geteuid() == 0:
                _take_identity(command, values, self._state_dir)
            return callback(*args, **values)

        setattr(guarded, _TAKES_IDENTITY, True)
        command.callback = guarded

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As every group, with messages of bounded length."""
        with _bounded_messages():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As every group, with messages of bounded length, and one line for a disk that takes or gives nothing."""
        try:
            with _bounded_messages():
                return super().invoke(ctx)
        except OSError as error:
            refusal = None if ctx.invoked_subcommand in _KNOW_DISKS else disk_refusal(error)
            if refusal is None:
                raise

            sys.stderr.write(bounded(f"{ctx.command_path}: {refusal}\n"))
            raise SystemExit(EXIT_CONFIGURATION) from None


def acts_for_owners(callback: Function) -> Function:
    """Mark the function of a command whose files belong to several users, so that root stays root.

    It must open each one through :func:`agent.process.identity.as_owner_of`.
    """
    setattr(callback, _ACTS_FOR_OWNERS, True)
    return callback


def _take_identity(command: click.Command, values: Mapping[str, Any], state_dir: Callable[[Path], Path]) -> None:
    from agent.cli.options import configuration_faults_end_it
    from agent.process.identity import refuse_odd_files, take_identity

    config_path = values.get("config_path")
    with configuration_faults_end_it():
        if config_path is not None:
            took = take_identity(config_path)
            folder = state_dir(config_path)
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


@contextmanager
def _bounded_messages() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        error.message = bounded(error.message)  # type: ignore[misc]  # what it quotes has any length
        raise


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
