"""Shared by the commands: configuration, options, printing and ending."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.app.status import StatusFile
from agent.config.load import DEFAULT_PATH, PREFIX, LoadedConfig, load_config, state_dir_of
from agent.config.model import AgentConfig

CONFIG_VARIABLE: Final = "DEVICE_AGENT_CONFIG"
"""Environment variable: stands for ``--config FILE``."""

AS_ROOT: Final = (
    "note: this ran as root, and the unit's user and sandbox may hide files and devices that root sees; "
    "device-agent status shows what the service itself reads (docs/operations.md, The sandbox)"
)
"""For whoever tries plug-ins, sensors or files as root."""

Function = TypeVar("Function", bound=Callable[..., Any])


def config_option_of(default: Path, variable: str, what: str) -> Callable[[Function], Function]:
    """``--config FILE`` of a program.

    Args:
        default: the file that is read without it.
        variable: of the environment, stands for the option.
        what: whose file it is, for the help text.
    """
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default=default,
        show_default=True,
        envvar=variable,
        help=f"{what}. Without the default file the environment alone may hold everything.",
    )


config_option = config_option_of(DEFAULT_PATH, CONFIG_VARIABLE, "The configuration file")
"""``--config FILE``."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for a program instead of text for a person."
)
"""``--json``."""


def file_to_load(config_path: Path, default: Path, prefix: str) -> Path | None:
    """The file to read; None when it is the default one, is not there, and the environment names the service.

    Args:
        config_path: as ``--config`` has it.
        default: the file that is read without ``--config``.
        prefix: what the variables begin with that set keys of the configuration.
    """
    is_default = config_path == default and not config_path.exists()
    return None if is_default and f"{prefix}SERVICE__BASE_URL" in os.environ else config_path


def load(config_path: Path) -> LoadedConfig:
    """The configuration that a command works with.

    Raises:
        ConfigurationError: every fault of it.
    """
    return load_config(file_to_load(config_path, DEFAULT_PATH, PREFIX), os.environ)


def state_dir(config_path: Path) -> Path:
    """The state directory, also of a configuration with faults."""
    return state_dir_of(AgentConfig, file_to_load(config_path, DEFAULT_PATH, PREFIX), os.environ, PREFIX)


def is_root() -> bool:
    """Whether root runs this."""
    return os.geteuid() == 0


def print_json(value: Any) -> None:
    """A value as JSON, readable by eye too."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as what is in them; the last one is not padded."""
    rows = [[" ".join(cell.splitlines()) for cell in row] for row in rows]  # a line end would forge a row
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def print_parts(state: str, last_status: StatusFile) -> None:
    """When a program wrote its last status, and how its parts were then."""
    written = "stopped" if state == "stopped" else "written"
    reason = f": {last_status.reason}" if last_status.reason else ""
    click.echo(f"{written:<10} {ago(last_status.written_wall_s)}{reason}")
    for name, part in last_status.parts.items():
        detail = f": {part.detail}" if part.detail else ""
        click.echo(f"  {name} {part.state} for {span(time.time() - part.since_wall_s)}{detail}")


def ago(wall_s: float) -> str:
    """How long ago a moment was, epoch seconds; 0 stands for an unknown one."""
    return f"{span(time.time() - wall_s)} ago" if wall_s else "an unknown time"


def span(seconds: float) -> str:
    """A length of time in its largest unit of which it has two."""
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
