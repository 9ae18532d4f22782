"""``device-gateway``: the gateway's program."""

from __future__ import annotations

from agent.cli import end_quietly
from agent.files import restrict_umask
from agent.terminal import protect_terminal


def main() -> None:
    """The program ``device-gateway``; returns its exit code."""
    restrict_umask()
    protect_terminal()
    with end_quietly():
        from gateway.cli.program import device_gateway

        device_gateway(prog_name="device-gateway")
