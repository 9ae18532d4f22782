"""``device-agent``. An agent that is to run goes past click, which it would carry for months and never use again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.cli.ending import end_quietly
from agent.umask import close_umask

CONFIG_VARIABLE = "DEVICE_AGENT_CONFIG"
"""Environment variable: stands for ``--config FILE``."""


def main() -> None:
    """The program."""
    close_umask()
    with end_quietly():
        config_path = plain_run(sys.argv[1:], os.environ)
        if config_path is None:
            from agent.cli.program import device_agent

            device_agent(prog_name="device-agent")
        else:
            from agent.cli.running import run_until_the_end

            run_until_the_end(config_path)


def plain_run(words: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """The configuration file of ``device-agent run`` where nothing but that file is given, as click would find it.

    Args:
        words: the arguments.
        environ: of the process.

    Returns:
        None for everything that click has to look at: other commands and options, help, and faults.
    """
    if list(words) == ["run"]:
        from agent.config.load import DEFAULT_PATH

        path = Path(environ.get(CONFIG_VARIABLE) or DEFAULT_PATH)
    elif len(words) == 3 and words[:2] == ["run", "--config"]:  # noqa: PLR2004 - the option and its value
        path = Path(words[2])
    else:
        return None
    is_readable = os.access(path, os.R_OK) or not os.path.exists(path)  # noqa: PTH110 - as click: never raises
    return path if is_readable else None
