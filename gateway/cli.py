"""``device-gateway``: the table of its commands. The module of a command is imported when it runs."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from agent.app.version import VERSION
from agent.cli.program import Program, file_to_load
from agent.config.load import state_dir_of
from agent.errors import EXIT_CONFIGURATION
from agent.files import restrict_umask
from agent.text import bounded, protect_terminal
from gateway.config import PREFIX, GatewayConfig
from gateway.options import DEFAULT_PATH

_COMMANDS: Final = {
    "broker-config": "gateway.broker:broker_config",
    "certificates": "gateway.certificates:certificates",
    "check": "gateway.ops:check",
    "devices": "gateway.devices:devices",
    "init": "gateway.initial:init",
    "rollout": "gateway.rollout:rollout",
    "run": "gateway.run:run",
    "status": "gateway.ops:status",
}
_EXTRA: Final = frozenset({"cryptography", "httpx_sse", "prometheus_client", "qrcode", "starlette", "uvicorn"})


class GatewayGroup(Program):
    """The gateway's commands need more than the agent's five dependencies; without them they say so."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program, or name what has to be installed for it."""
        try:
            return super().main(*args, **options)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in _EXTRA:
                raise
            text = f"the gateway needs {error.name}: pip install '.[gateway]' in a clone of device-agent"
            click.echo(bounded(text), err=True)
            raise SystemExit(EXIT_CONFIGURATION) from None


@click.group(
    cls=GatewayGroup,
    name="device-gateway",
    places=_COMMANDS,
    state_dir=lambda path: state_dir_of(GatewayConfig, file_to_load(path, DEFAULT_PATH, PREFIX), os.environ, PREFIX),
    context_settings={
        "auto_envvar_prefix": "DEVICE_GATEWAY",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.version_option(VERSION, prog_name="device-gateway")
def device_gateway() -> None:
    """Run the gateway: it alone holds the key pair, and devices talk to it with tokens of their own.

    Exit codes: 0 good, 1 a check failed or the gateway crashed, 2 usage or configuration, 5 the service or the broker
    cannot be reached. Every key of its configuration can also be set by the environment:
    DEVICE_GATEWAY_SERVICE__BASE_URL sets service.base_url.
    """


def main() -> None:
    """The program ``device-gateway``; returns its exit code."""
    restrict_umask()
    protect_terminal()
    device_gateway(prog_name="device-gateway")


if __name__ == "__main__":
    main()
