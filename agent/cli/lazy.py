"""A group of commands that imports each one only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for: ``run`` stays small on a small device.

    Args:
        lazy: name -> ``module:attribute`` of the command.
        moved: name of a command that is elsewhere now -> what to type instead.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, str], moved: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy
        self._moved = moved

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        del ctx
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if self._moved and cmd_name in self._moved:
            raise click.UsageError(f"{cmd_name!r} is {self._moved[cmd_name]!r} now, a program of its own", ctx)
        target = self._lazy.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found
