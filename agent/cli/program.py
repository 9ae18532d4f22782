"""Entry point of ``device-agent``: the table of its commands, and what they share: options, printing, errors.

A command's module is imported when the command runs. Each command that root types takes the identity of whom the
folders belong to that it works in, before it opens anything there (:mod:`agent.identity`).
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.app.status import StatusFile
from agent.app.version import VERSION
from agent.config.load import DEFAULT_PATH, PREFIX, LoadedConfig, load_config, state_dir_of
from agent.config.model import AgentConfig
from agent.errors import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, ConfigurationError
from agent.identity import refuse_odd_files, take_identity
from agent.text import bounded, disk_refusal

CONFIG_VARIABLE: Final = "DEVICE_AGENT_CONFIG"
"""Environment variable: stands for ``--config FILE``."""

_STAYS_ROOT: Final = "stays_root"

Function = TypeVar("Function", bound=Callable[..., Any])


class Program(click.Group):
    """The commands of a program, each imported when it is asked for: ``run`` stays small on a small device.

    Args:
        places: name -> ``module:attribute`` of the command.
        state_dir: the state directory that a configuration file names.
    """

    def __init__(self, *args: Any, places: Mapping[str, str], state_dir: Callable[[Path], Path], **more: Any) -> None:
        super().__init__(*args, **more)
        self._places = places
        self._state_dir = state_dir

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, sorted."""
        del ctx
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        del ctx
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        self._guard(found)
        return found

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program as click does; an error ends it with one bounded line for each fault, not with a traceback.

        A wrong configuration ends it with code 2, and so does a disk that takes or gives nothing.
        """
        code: Any = EXIT_CONFIGURATION
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except click.Abort:
            click.echo("Aborted!", err=True)
            code = EXIT_CHECK_FAILED
        except click.ClickException as error:  # it quotes arguments, which have any length
            error.message = bounded(error.message)  # type: ignore[misc]  # final in click
            error.show()
            code = error.exit_code
        except ConfigurationError as error:
            click.echo(bounded(str(error)), err=True)
        except OSError as error:
            refusal = disk_refusal(error)
            if refusal is None:
                raise
            click.echo(bounded(f"{self.name}: {refusal}"), err=True)
        sys.exit(code)

    def _guard(self, command: click.Command) -> None:
        """Let root begin a command, and all that are in it, with the identity of whom its folders belong to."""
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            self._guard(inner)
        callback = command.callback
        if callback is None or isinstance(command, click.Group) or hasattr(callback, _STAYS_ROOT):
            return

        @functools.wraps(callback)
        def guarded(*args: Any, **values: Any) -> Any:
            if os.geteuid() == 0:
                self._take_identity(command, values)
            return callback(*args, **values)

        command.callback = acts_for_owners(guarded)

    def _take_identity(self, command: click.Command, values: Mapping[str, Any]) -> None:
        config_path = values.get("config_path")
        if config_path is not None:
            took = take_identity(config_path)
            folder = self._state_dir(config_path)
            if take_identity(folder) or took:
                refuse_odd_files(folder)
                return
        for option in command.params:
            # The state directory that ``init`` is given is only written down.
            if not isinstance(option.type, click.Path) or option.name in {"config_path", "state_dir"}:
                continue
            given = values.get(option.name or "")
            if option.type.dir_okay and isinstance(given, Path) and take_identity(given):
                return


def acts_for_owners(callback: Function) -> Function:
    """Mark the function of a command whose files belong to several users, so that root stays root.

    It must open each one through :func:`agent.identity.as_owner_of`.
    """
    setattr(callback, _STAYS_ROOT, True)
    return callback


# --- options and configuration ----------------------------------------------------------------------------------------


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


# --- printing ---------------------------------------------------------------------------------------------------------


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


# --- the program ------------------------------------------------------------------------------------------------------


@click.group(
    cls=Program,
    name="device-agent",
    places={
        "check": "agent.cli.check:check",
        "diagnostics": "agent.cli.check:diagnostics",
        "doctor": "agent.cli.check:doctor",
        "enroll": "agent.cli.enroll:enroll",
        "keys": "agent.cli.enroll:keys",
        "plugins": "agent.cli.plugins:plugins",
        "run": "agent.cli.run:run",
        "status": "agent.cli.run:status",
        "update": "agent.cli.plugins:update",
    },
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
