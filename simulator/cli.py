"""The program ``fleet-simulator``: its commands, imported only when one is called.

Every option has an environment variable: ``FLEET_SIMULATOR_``, the command's words and the option's name, such as
``FLEET_SIMULATOR_DEMO_OUT``; the help of each command lists them. Exit codes: :mod:`simulator.exit_codes`. A command
may return one.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, cast

import click

from agent.errors import AgentError
from agent.files import restrict_umask
from agent.text import bounded, disk_refusal, protect_terminal
from simulator.exit_codes import ExitCode, exit_code_of, text_of

_PREFIX: Final = "FLEET_SIMULATOR"


COMMANDS: Final = {
    "demo": ("simulator.demo.cli:demo_command", "The whole story in under a minute, proven, with a report."),
    "up": ("simulator.up_command:up_command", "Service, gateway and devices on this machine, until Ctrl-C."),
    "service": ("simulator.service.cli:service_command", "The local service alone."),
    "accounts": ("simulator.control_commands:accounts_group", "Accounts of a running local service."),
    "faults": ("simulator.control_commands:faults_group", "Make a running local service fail on purpose."),
    "command": ("simulator.command:command_group", "Send commands to devices, signed or not."),
    "probe": ("simulator.probe.cli:probe_command", "What a server does where it may choose."),
    "labels": ("simulator.labels.cli:labels_command", "QR labels that are proven to read."),
    "login": ("simulator.login.cli:login_command", "Sign in with a browser; keep the tokens in a file."),
    "onboard": ("simulator.onboarding.cli:onboard_group", "Onboarding in every order of events."),
    "init": ("simulator.fleet.cli:init_command", "Write a commented scenario to start from."),
    "plan": ("simulator.fleet.cli:plan_command", "What a scenario would do, without doing it."),
    "run": ("simulator.fleet.cli:run_command", "A fleet under load, measured, and proof that nothing was lost."),
    "report": ("simulator.fleet.cli:report_command", "Make the reports of a fleet run anew."),
    "compare": ("simulator.fleet.cli:compare_command", "Hold two fleet runs against each other."),
    "audit": ("simulator.fleet.cli:audit_command", "Audit a finished fleet run again."),
    "cleanup": ("simulator.fleet.cli:cleanup_command", "Take away what fleet runs made on a target."),
}
"""Name -> where the command is, and its line in the overview; neither costs an import."""


class LazyGroup(click.Group):
    """A click group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when there is no such name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        place, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] in {"simulator", "agent"}:
                raise
            raise click.ClickException(
                f"the package {error.name!r} is missing: pip install '.[simulator]' in a clone of device-agent"
            ) from None
        command = cast("click.Command", getattr(module, attribute))
        _name_variables(command, f"{_PREFIX}_{cmd_name}")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and end with the code that it returns, or with one line for an error of ours."""
        try:
            code = super().invoke(ctx)
        except AgentError as error:
            click.echo(bounded(f"{ctx.command_path} {ctx.invoked_subcommand}: {text_of(error)}"), err=True)
            code = exit_code_of(error)
        ctx.exit(code or ExitCode.GOOD)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _name_variables(command: click.Command, prefix: str) -> None:
    """Let every option of a command, and of those in it, be set by the variable that is called as the option.

    Args:
        command: of any depth.
        prefix: the program's and the command's words, such as ``FLEET_SIMULATOR_LABELS``.
    """
    words = prefix.replace("-", "_").upper()
    for option in command.params:
        long = next((one for one in option.opts if one.startswith("--")), "")
        if not isinstance(option, click.Option) or not long:
            continue
        option.show_envvar = True
        option.envvar = f"{words}_{long[2:].replace('-', '_').upper()}"
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        _name_variables(inner, f"{words}_{name}")


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
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
    except OSError as error:
        refusal = disk_refusal(error)
        if refusal is None:
            raise
        click.echo(bounded(f"fleet-simulator: {refusal}"), err=True)
        code = ExitCode.USAGE
    sys.exit(code if isinstance(code, int) else ExitCode.GOOD)


if __name__ == "__main__":
    main()
