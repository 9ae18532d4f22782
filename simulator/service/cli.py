"""``fleet-simulator service``: the local service alone."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from agent.errors import ConfigurationError
from agent.text import bounded
from simulator.credentials import read_secret_file
from simulator.exit_codes import ExitCode
from simulator.interrupts import terminations_as_interrupts
from simulator.options import make_options, take_settings
from simulator.service.config import ServiceConfig
from simulator.watched import PartEnded

if TYPE_CHECKING:
    from simulator.service.server import RunningService

DEFAULT_PORT: Final = 8080
_LOOK_S: Final = 1.0
_NOT_OF_EXEC: Final = ("console", "runs_dir", "scenarios_dir")
"""Nobody sits before a command's own service."""
_SECRET_KEY_FILE: Final = "--secret-key-file"  # noqa: S105 - the name of an option


@click.group("service", short_help="Run the local service.", invoke_without_command=True)
@click.pass_context
def service_command(context: click.Context, /, **given: Any) -> None:
    """Run the local service: products, devices, commands, sensor data and onboarding over HTTP.

    SIGTERM or Ctrl-C ends it. Exit codes: 0 ended by a signal, 1 an error ended it (the log names it), 2 the settings
    cannot be used.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    with _errors_as_exit_codes(given["log_level"]):
        config = _configure(given, console=given["console"] and given["control"])
        from simulator.service.server import RunningService  # half a second: not for --help or a wrong option

        with contextlib.suppress(KeyboardInterrupt), terminations_as_interrupts(), RunningService(config) as service:
            # What the imports made stays: a full collection need not look at it, and holds nobody up for 50 ms.
            gc.collect()
            gc.freeze()
            _greet(service)
            while True:
                time.sleep(_LOOK_S)
                service.look()


def _execute(*, command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND with a service of its own, started before it and ended after it.

    The service listens on a free port, keeps nothing, and has no quota, unless options say otherwise. Its address and
    keys are in the environment of COMMAND: DEVICE_SERVICE_URL, DEVICE_SERVICE_API_KEY, DEVICE_SERVICE_SECRET_KEY,
    files with the keys in DEVICE_SERVICE_API_KEY_FILE and DEVICE_SERVICE_SECRET_KEY_FILE, and what device-agent,
    device-gateway and the commands of fleet-simulator read by themselves. Signals are passed on.

    Exit codes: that of COMMAND, 128 and its number for a signal that ended it; 1 also when an error ended the service,
    2 when the settings cannot be used or there is no COMMAND.
    """
    with _errors_as_exit_codes(given["log_level"]):
        config = _configure(given)
        from simulator.service.exec_command import execute  # lazily, as above

        return execute(config, command)
    raise AssertionError("unreachable")


def _own_file() -> click.Option:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.Option([_SECRET_KEY_FILE], type=kind, help="File that holds the secret key.")


service_command.params = [
    *make_options(ServiceConfig, defaults={"port": DEFAULT_PORT, "console": True}),
    _own_file(),
]
service_command.add_command(
    click.Command(
        "exec",
        params=[
            # A suite is not to wait for a quota, and what is shown is its own.
            *make_options(ServiceConfig, defaults={"rate_limit": 0, "log_level": "warning"}, leave_out=_NOT_OF_EXEC),
            _own_file(),
            click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED),
        ],
        callback=_execute,
        help=_execute.__doc__,
        short_help="Run a command with a service of its own.",
        context_settings={"allow_interspersed_args": False},
    )
)


def _refuse_misplaced(context: click.Context) -> None:
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            name, inner = parameter.opts[0], context.invoked_subcommand
            raise click.UsageError(f"{name} stands before {inner}: write 'service {inner} {name} ...'")


@contextlib.contextmanager
def _errors_as_exit_codes(log_level: str) -> Iterator[None]:
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("asyncio", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        yield
    except ConfigurationError as error:
        for fault in error.faults:
            click.echo(bounded(f"error: {fault}"), err=True)
        sys.exit(ExitCode.USAGE)
    except PartEnded as error:
        click.echo(bounded(f"error: {error}"), err=True)
        sys.exit(ExitCode.CHECK_FAILED)


def _configure(given: dict[str, Any], **settings: Any) -> ServiceConfig:
    path: Path | None = given.pop("secret_key_file")
    found = take_settings(ServiceConfig, given) | settings
    if path is not None and found["secret_key"]:
        raise ConfigurationError([f"give --secret-key or {_SECRET_KEY_FILE}, not both"], "service")
    if path is not None:
        found["secret_key"] = read_secret_file(path, _SECRET_KEY_FILE)
    return ServiceConfig(**found)


def _greet(service: RunningService) -> None:
    from simulator.service.variant import COMPLETE, name_of  # lazily, as the server

    made = service.made_keys
    api_key = service.api_key
    secret = made.secret_key.reveal() if made else "$SECRET_KEY"
    lines = [("service", service.base_url)]
    if service.console_url is not None:
        lines.append(("console", service.console_url))
    if service.variant != COMPLETE:
        lines.append(("variant", name_of(service.variant)))
    lines += [("data", service.where), ("api key", api_key)]
    if made:
        lines.append(("secret key", f"{secret}   (shown this once: keep it)"))
    lines.append(("try", f"curl -H 'x-api-key: {api_key}' -H 'x-secret-key: {secret}' {service.base_url}/products"))
    for name, text in lines:
        click.echo(f"{name:<10} {text}")
    click.echo("Ctrl-C ends it.")
    sys.stdout.flush()
