"""``device-gateway``: the gateway's program."""

from __future__ import annotations

from agent.cli import end_quietly
from agent.process.at_start import close_umask


def main() -> None:
    """The program."""
    close_umask()
    with end_quietly():
        from gateway.cli.program import device_gateway

        device_gateway(prog_name="device-gateway")
