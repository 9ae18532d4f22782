"""Entry point of ``device-agent``: the table of its commands. A command's module is imported when the command runs."""

from __future__ import annotations

from typing import Final

import click

from agent.app.version import VERSION
from agent.cli.lazy import LazyGroup
from agent.cli.options import state_dir

_COMMANDS: Final = {
    "check": "agent.cli.check:check",
    "diagnostics": "agent.cli.check:diagnostics",
    "doctor": "agent.cli.check:doctor",
    "enroll": "agent.cli.enroll:enroll",
    "keys": "agent.cli.enroll:keys",
    "plugins": "agent.cli.plugins:plugins",
    "run": "agent.cli.run:run",
    "status": "agent.cli.status:status",
    "update": "agent.cli.plugins:update",
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    state_dir=state_dir,
    context_settings={
        "auto_envvar_prefix": "DEVICE_AGENT",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.version_option(VERSION, prog_name="device-agent")
def device_agent() -> None:
    """Connects this device to the service: runs commands, sends sensor data.

    Exit codes: 0 good, 1 a check failed or the agent crashed, 2 usage or configuration, 5 the service cannot be
    reached, 75 the agent ended to be started anew. Every key of the configuration can also be set by the
    environment: DEVICE_AGENT_SERVICE__BASE_URL sets service.base_url.
    """
