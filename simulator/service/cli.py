"""``fleet-simulator service``: the local service alone."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from agent.error_text import bounded
from agent.errors import ConfigurationError, StorageError
from agent.wire.limits import QUOTA_PER_MINUTE
from agent.wire.secret import Secret
from simulator.credentials import read_secret_file
from simulator.service.config import ServiceConfig
from simulator.service.profiles.model import COMPLETE
from simulator.service.profiles.text import name_of, read_all
from simulator.service.request_log.settings import KEEP_DEFAULT, KEEP_MAX
from simulator.watched import PartEnded

if TYPE_CHECKING:
    from simulator.service.additions import Addition
    from simulator.service.service import Service

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_PORT = 8080
_LEVELS = ("debug", "info", "warning", "error")
_NOT_OF_EXEC: Final = frozenset({"no_console", "runs_dir", "scenarios_dir"})
"""Nobody sits before a command's own service."""
_EXEC_DEFAULTS: Final[dict[str, object]] = {"port": 0, "rate_limit": 0, "log_level": "warning"}
"""Of ``service exec``, where they differ: a suite is not to wait for a quota, and what is shown is its own."""


def _option(name: str, *names: str, variable: str = "", **rest: Any) -> Callable[[Command], Command]:
    """An option that can also be set by the environment variable FLEET_SIMULATOR_ and its name, or ``variable``."""
    variable = variable or name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, *names, envvar=f"FLEET_SIMULATOR_{variable}", show_envvar=True, show_default=True, **rest)


@click.group("service", short_help="Run the local service.", invoke_without_command=True)
@_option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 lets other machines in.")
@_option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, help="0 takes any free one.")
@_option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps everything; without it all is in a temporary one and gone at the end.",
)
@_option(
    "--seed",
    "seed_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML of products, rules, devices, users, clients that are to be there; the same file twice changes nothing.",
)
@_option("--api-key", help="Begins with mk_; made when absent.")
@_option(
    "--secret-key",
    help="Begins with msk_. Other users of this machine see it in the process list: prefer --secret-key-file.",
)
@_option("--secret-key-file", type=click.Path(dir_okay=False, path_type=Path), help="File that holds the secret key.")
@_option(
    "--rate-limit",
    type=click.IntRange(min=0),
    default=QUOTA_PER_MINUTE,
    help="Requests of one key in a calendar minute; 0 = no limit.",
)
@_option("--validate-commands", is_flag=True, help="Check each command_payload against its product's vocabulary.")
@_option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE|AXIS=VALUE,...",
    help="Answer the first account as another server would: complete, plain, a .yaml file, or axis=value,...; a later "
    "one changes what the earlier ones said. Without it, what is stored.",
)
@_option("--no-control", is_flag=True, help="Do not serve /_emulator/... (loopback callers only).")
@_option(
    "--no-console",
    is_flag=True,
    help="Do not serve the console, the pages at /; it is off with --no-control, too.",
)
@_option(
    "--runs",
    "runs_dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the fleet runs that the console shows, and that it puts new ones into.  [default: fleet-runs]",
)
@_option(
    "--scenarios",
    "scenarios_dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the scenarios (*.yaml) that may be started from the console; without it none is.",
)
@_option(
    "--control-token",
    help="What callers of /_emulator/... must send in X-Emulator-Token; without it none is needed.",
)
@_option(
    "--snapshot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Begin with the state of this file, where nothing is stored yet. Made by --snapshot-on-exit or "
    "POST /_emulator/snapshots.",
)
@_option(
    "--snapshot-on-exit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Leave the state in this file at the end, in place of one that is there.",
)
@_option(
    "--snapshots",
    "snapshots_dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the snapshots with names. Without it, snapshots in the folder of --data, else a temporary one.",
)
@_option(
    "--keep-requests",
    type=click.IntRange(0, KEEP_MAX),
    default=KEEP_DEFAULT,
    help="Requests and answers that /_emulator/requests shows, in memory; 0 = none.",
)
@_option("--log-level", type=click.Choice(_LEVELS), default="info", help="The least severe lines to write.")
@click.pass_context
def service_command(context: click.Context, /, **options: Any) -> None:
    """Run the local service: products, devices, commands, sensor data and onboarding over HTTP.

    SIGTERM or Ctrl-C ends it. Exit codes: 0 ended by a signal, 1 an error ended a part of it and so the whole (the log
    names it), or the snapshot at the end could not be written, 2 the settings cannot be used.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    with_console = not options.pop("no_console")
    folders = {name: options.pop(f"{name}_dir") for name in ("runs", "scenarios")}
    with _errors_as_exit_codes(options["log_level"]):
        config = _configure(**options)
        _refuse_unused(folders, has_console=with_console and config.control)
        # Its libraries take a second: not for --help or a wrong option.
        from agent.process.setup import use_one_arena
        from simulator.service.server import serve

        use_one_arena()
        made: list[Addition] = []

        def make_console(service: Service) -> Addition | None:
            addition: Addition | None = _part("make_console")(service, **folders)
            made.extend([addition] if addition else [])
            return addition

        def greet(service: Service, base_url: str) -> None:
            _greet(service, base_url, made[0].entry_path() if made else None)

        serve(config, greet, make_console if with_console and _part("make_console") else None)


def _refuse_unused(folders: Mapping[str, Path | None], *, has_console: bool) -> None:
    """Refuse options of the console where there is none."""
    given = [f"--{name}" for name, folder in folders.items() if folder is not None]
    if given and not has_console:
        fault = (
            f"{', '.join(given)}: of the console, which --no-console or --no-control leaves out: leave out one of them"
        )
        raise ConfigurationError([fault], "service")


def _part(name: str) -> Any:
    """What the program brings along for the service, whose package may not import it: ``make_signals`` makes what
    devices read, ``make_console`` the console. None where it is not run by the program.
    """
    return (click.get_current_context().obj or {}).get(name)


def _execute(*, command: tuple[str, ...], **options: Any) -> int:
    """Run COMMAND with a service of its own, started before it and ended after it.

    The service listens on a free port, keeps nothing, and has no quota, unless options say otherwise. Its address and
    keys are in the environment of COMMAND: DEVICE_SERVICE_URL, DEVICE_SERVICE_API_KEY, DEVICE_SERVICE_SECRET_KEY,
    files with the keys in DEVICE_SERVICE_API_KEY_FILE and DEVICE_SERVICE_SECRET_KEY_FILE, and what device-agent,
    device-gateway and the commands of fleet-simulator read by themselves. Signals are passed on.

    Exit codes: that of COMMAND, 128 and its number for a signal that ended it; 1 also when an error ended the service,
    2 when the settings cannot be used or there is no COMMAND.
    """
    with _errors_as_exit_codes(options["log_level"]):
        config = _configure(**options)
        from simulator.service.exec_command import execute  # lazily, as above

        return execute(config, command)


def _options_of_exec() -> list[click.Parameter]:
    """The service's own options, without their environment variables, and with defaults that fit one command."""
    found: list[click.Parameter] = []
    for parameter in service_command.params:
        if parameter.name in _NOT_OF_EXEC:
            continue
        copied = copy.copy(parameter)
        copied.envvar = None
        copied.default = _EXEC_DEFAULTS.get(copied.name or "", copied.default)
        found.append(copied)
    return [*found, click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED)]


service_command.add_command(
    click.Command(
        "exec",
        params=_options_of_exec(),
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
    except ConfigurationError as exc:
        for fault in exc.faults:
            click.echo(bounded(f"error: {fault}"), err=True)
        sys.exit(2)
    except (PartEnded, StorageError) as exc:
        click.echo(bounded(f"error: {exc}"), err=True)
        sys.exit(1)


def _configure(
    *,
    host: str,
    port: int,
    data_dir: Path | None,
    seed_file: Path | None,
    api_key: str | None,
    secret_key: str | None,
    secret_key_file: Path | None,
    rate_limit: int,
    validate_commands: bool,
    profiles: tuple[str, ...],
    no_control: bool,
    control_token: str | None,
    snapshot: Path | None,
    snapshot_on_exit: Path | None,
    snapshots_dir: Path | None,
    keep_requests: int,
    log_level: str,
) -> ServiceConfig:
    return ServiceConfig(
        host=host,
        port=port,
        data_dir=data_dir,
        seed_file=seed_file,
        api_key=api_key or None,
        secret_key=_read_secret(secret_key, secret_key_file),
        rate_limit=rate_limit,
        validate_commands=validate_commands,
        control=not no_control,
        control_token=Secret(control_token) if control_token else None,
        profile=read_all(profiles) if profiles else None,
        snapshot=snapshot,
        snapshot_on_exit=snapshot_on_exit,
        snapshots_dir=snapshots_dir,
        keep_requests=keep_requests,
        log_level=log_level,
        make_signals=_part("make_signals"),
    )


def _read_secret(secret_key: str | None, secret_key_file: Path | None) -> Secret | None:
    if secret_key and secret_key_file:
        raise ConfigurationError(["give --secret-key or --secret-key-file, not both"], "service")
    if secret_key_file is not None:
        return read_secret_file(secret_key_file, "--secret-key-file")
    return Secret(secret_key) if secret_key else None


def _greet(service: Service, base_url: str, entry_path: str | None = None) -> None:
    made = service.made_keys
    secret = made.secret_key.reveal() if made else "$SECRET_KEY"
    click.echo(f"service    {base_url}")
    if entry_path is not None:
        click.echo(f"console    {base_url}{entry_path}   (opens once, within 15 minutes)")
    profile = service.profiles.of(service.first_caller().manufacturer_seq)
    if profile != COMPLETE:
        click.echo(f"profile    {name_of(profile)}")
    click.echo(f"data       {service.database.where}")
    click.echo(f"api key    {service.accounts.api_key}")
    if made:
        click.echo(f"secret key {secret}   (shown this once: keep it)")
    click.echo(
        f"try        curl -H 'x-api-key: {service.accounts.api_key}' -H 'x-secret-key: {secret}' {base_url}/products"
    )
    click.echo("Ctrl-C ends it.")
    sys.stdout.flush()
