"""``device-agent``: click commands, no logic. Each command's module is imported only when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

from agent.app.version import VERSION

_COMMANDS: Final = {
    "check": "agent.cli.check:check",
    "config": "agent.cli.config:config",
    "handlers": "agent.cli.plugins:handlers",
    "init": "agent.cli.init:init",
    "run": "agent.cli.run:run",
    "sensors": "agent.cli.plugins:sensors",
    "status": "agent.cli.status:status",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for: ``run`` stays small on a small device."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        del ctx
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="device-agent")
def device_agent() -> None:
    """Connects this device to the service: runs commands, sends sensor data.

    Exit codes: 0 good, 1 a check failed or the agent crashed, 2 usage or configuration, 5 the service cannot be
    reached, 75 the agent ended to be started anew. Every key of the configuration can also be set by the environment:
    DEVICE_AGENT_SERVICE__BASE_URL sets service.base_url.
    """


def main() -> None:
    """The program."""
    try:
        device_agent(prog_name="device-agent")
    except BrokenPipeError:
        # The reader of a listing went away, as head does: no reason for a traceback.
        sys.stderr.close()
        sys.exit(0)
