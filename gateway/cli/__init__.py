"""``device-gateway``: the gateway's program."""

from __future__ import annotations

from agent.files import restrict_umask
from agent.text import protect_terminal
from gateway.cli.program import device_gateway


def main() -> None:
    """The program ``device-gateway``; returns its exit code."""
    restrict_umask()
    protect_terminal()
    device_gateway(prog_name="device-gateway")
