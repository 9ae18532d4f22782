"""The program ``fleet-simulator``: its commands, imported only when one is called.

Every option has an environment variable: ``FLEET_SIMULATOR_``, the command's words and the option's name, such as
``FLEET_SIMULATOR_DEMO_OUT``; the help of each command lists them. Exit codes: :mod:`simulator.exit_codes`. A command
may return one.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any, Final, cast

import click

from agent.cli.lazy import name_variables
from agent.error_text import bounded, disk_refusal
from agent.errors import AgentError
from agent.process.setup import restrict_umask
from agent.terminal import protect_terminal
from simulator.exit_codes import ExitCode, exit_code_of

_PREFIX: Final = "FLEET_SIMULATOR"


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, and its one line for the overview; neither costs an import.

    Attributes:
        module: the module to import when the command is called.
        attribute: the click command in it.
        summary: what ``fleet-simulator --help`` shows.
    """

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, LazyCommand]] = {
    "demo": LazyCommand(
        "simulator.demo.cli", "demo_command", "The whole story in under a minute, proven, with a report."
    ),
    "up": LazyCommand(
        "simulator.up_command", "up_command", "Service, gateway and devices on this machine, until Ctrl-C."
    ),
    "service": LazyCommand("simulator.service.cli", "service_command", "The local service alone."),
    "accounts": LazyCommand(
        "simulator.control.accounts", "accounts_group", "Accounts of a running local service, with keys of their own."
    ),
    "faults": LazyCommand("simulator.control.faults", "faults_group", "Make a running local service fail on purpose."),
    "command": LazyCommand("simulator.command.cli", "command_group", "Send commands to devices, signed or not."),
    "probe": LazyCommand("simulator.probe.cli", "probe_command", "What a server does where it may choose."),
    "labels": LazyCommand("simulator.labels.cli", "labels_command", "QR labels that are proven to read."),
    "login": LazyCommand("simulator.login.cli", "login_command", "Sign in with a browser; keep the tokens in a file."),
    "onboard": LazyCommand("simulator.onboarding.cli", "onboard_group", "Onboarding in every order of events."),
    "init": LazyCommand("simulator.fleet.cli.init", "init_command", "Write a commented scenario to start from."),
    "plan": LazyCommand("simulator.fleet.cli.plan", "plan_command", "What a scenario would do, without doing it."),
    "run": LazyCommand(
        "simulator.fleet.cli.run", "run_command", "A fleet under load, measured, and proof that nothing was lost."
    ),
    "report": LazyCommand("simulator.fleet.cli.report", "report_command", "Make the reports of a fleet run anew."),
    "compare": LazyCommand("simulator.fleet.cli.compare", "compare_command", "Hold two fleet runs against each other."),
    "audit": LazyCommand("simulator.fleet.cli.audit", "audit_command", "Audit a finished fleet run again."),
    "scenario-schema": LazyCommand("simulator.fleet.cli.plan", "schema_command", "JSON Schema of scenarios."),
    "cleanup": LazyCommand(
        "simulator.fleet.cli.cleanup", "cleanup_command", "Take away what fleet runs made on a target."
    ),
}


class LazyGroup(click.Group):
    """A click group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when there is no such name."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            module = importlib.import_module(entry.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] in {"simulator", "agent"}:
                raise
            raise click.ClickException(
                f"the package {error.name!r} is missing: pip install '.[simulator]' in a clone of device-agent"
            ) from None
        command = cast("click.Command", getattr(module, entry.attribute))
        name_variables(command, f"{_PREFIX}_{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "auto_envvar_prefix": _PREFIX,
        "max_content_width": 110,
    },
)
@click.version_option(package_name="device-agent", prog_name="fleet-simulator")
def program() -> None:
    """The service on your machine, QR labels, onboarding, and a fleet of devices beside a real one."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the program and end the process with its exit code.

    Args:
        arguments: without the program's name; None takes the process's own.
    """
    code: object
    restrict_umask()
    protect_terminal()
    try:
        code = program.main(args=arguments, prog_name="fleet-simulator", standalone_mode=False)
    except click.exceptions.Abort:
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.message = bounded(error.message)  # type: ignore[misc]  # what it quotes has any length
        error.show()
        code = error.exit_code
    except AgentError as error:
        click.echo(bounded(f"fleet-simulator: {error}"), err=True)
        code = exit_code_of(error)
    except OSError as error:
        refusal = disk_refusal(error)
        if refusal is None:
            raise
        click.echo(bounded(f"fleet-simulator: {refusal}"), err=True)
        code = ExitCode.USAGE
    sys.exit(code if isinstance(code, int) else ExitCode.GOOD)


if __name__ == "__main__":
    main()
