"""``device-agent``: the agent's program."""

from __future__ import annotations

from agent.cli.program import device_agent
from agent.files import restrict_umask
from agent.text import protect_terminal


def main() -> None:
    """The program ``device-agent``; returns its exit code."""
    restrict_umask()
    protect_terminal()
    device_agent(prog_name="device-agent")
