"""``device-agent gateway``: the group of the gateway's commands."""

from __future__ import annotations

from typing import Any, Final

import click

from agent.bounded_text import bounded
from agent.cli.lazy import LazyGroup
from agent.cli.loading import EXIT_CONFIGURATION

_COMMANDS: Final = {
    "broker-config": "agent.cli.gateway_broker:broker_config",
    "certificates": "agent.cli.gateway_broker:certificates",
    "check": "agent.cli.gateway_run:check",
    "devices": "agent.cli.gateway_devices:devices",
    "doctor": "agent.cli.gateway_doctor:doctor",
    "init": "agent.cli.gateway_init:init",
    "run": "agent.cli.gateway_run:run",
    "status": "agent.cli.gateway_run:status",
}
_EXTRA: Final = frozenset({"cryptography", "httptools", "prometheus_client", "qrcode", "starlette", "uvicorn"})


class GatewayGroup(LazyGroup):
    """The gateway's commands need more than the agent's five dependencies; without them they say so."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or name what has to be installed for it."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in _EXTRA:
                raise
            text = f"the gateway needs {error.name}: pip install 'device-agent[gateway]'"
            click.echo(bounded(text), err=True)
            raise SystemExit(EXIT_CONFIGURATION) from None


@click.group(cls=GatewayGroup, lazy=_COMMANDS, context_settings={"auto_envvar_prefix": "DEVICE_GATEWAY"})
def gateway() -> None:
    """Run the gateway: it alone holds the key pair, and devices talk to it with tokens of their own.

    Every key of its configuration can also be set by the environment: DEVICE_GATEWAY_SERVICE__BASE_URL sets
    service.base_url.
    """
