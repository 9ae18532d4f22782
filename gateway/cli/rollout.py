"""``device-gateway rollout``."""

from __future__ import annotations

import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agent.cli.options import configuration_faults_end_it, json_option, print_json
from agent.error_text import bounded
from agent.errors import Advice, ConfigurationError, ServiceError
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, EXIT_INTERRUPTED, EXIT_UNREACHABLE
from gateway.cli.options import gateway_config_option, load_without_keys, read_duration
from gateway.cli.rollout_given import FAILED, SILENT, given_limits, given_payload, given_targets, given_ttl

if TYPE_CHECKING:
    from agent.wire.sending import SendingClient
    from gateway.config import GatewayConfig
    from gateway.rollout.book import RolloutBook

_FOLDER: Final = "rollouts"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WAVES: Final = "1,5%,25%,all"
_ONLY_AT_BEGIN: Final = {
    "command": "--command",
    "command_file": "--command-file",
    "product_id": "--product-id",
    "device_ids": "--device-id",
    "devices_file": "--devices",
    "waves": "--waves",
    "ttl_s": "--ttl",
}


@click.command()
@gateway_config_option
@json_option
@click.option("--command", help="The command_payload that each device gets: a JSON object.")
@click.option(
    "--command-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="The same out of a file; - is standard input.",
)
@click.option("--product-id", help="All devices of this product.")
@click.option("--device-id", "device_ids", multiple=True, help="This device; once for each.")
@click.option(
    "--devices",
    "devices_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The devices of a file: one id in each line.",
)
@click.option(
    "--waves",
    help="How many devices have the command after each wave: numbers, shares of all, at last 'all'. "
    f"Default: {_WAVES}.",
)
@click.option(
    "--wave-timeout",
    "timeout_s",
    type=read_duration,
    metavar="TIME",
    help="How long the results of a wave are waited for after its last command was sent: 90s, 30m, 6h. Default: 30m.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=read_duration,
    metavar="TIME",
    help="How long a command waits for its device, 48h at most. Default: as long as --wave-timeout, so that no device "
    "begins after it has counted as silent.",
)
@click.option(
    "--max-failed",
    help=f"Stop when more than this share of a wave's devices fails or rejects the command. Default: {FAILED}.",
)
@click.option(
    "--max-silent",
    help=f"Stop when more than this share of a wave's devices gives no result in time. Default: {SILENT}.",
)
@click.option(
    "--name",
    help="Of this rollout: letters, digits, _ . - . Its devices' order and its state file hang on it. Default: the "
    "time of its begin.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where state files of rollouts are kept. Default: rollouts in the gateway's state directory.",
)
@click.option("--resume", is_flag=True, help="Go on with the rollout --name, which was interrupted or has stopped.")
@click.option("--dry-run", is_flag=True, help="Print the waves and send nothing.")
def rollout(*, config_path: Path, as_json: bool, resume: bool, dry_run: bool, **given: Any) -> None:
    """Send a command to many devices in waves; the next wave follows once the one before has done well.

    It stops by itself when too many devices of a wave fail or stay silent. Interrupted, even by kill -9, it goes on
    with --resume and sends no device a second command. With --resume, --wave-timeout, --max-failed and --max-silent
    may have other values than before.

    Exit codes: 0 all waves are done, 1 it stopped or the service refused, 2 usage or configuration, 5 the service
    cannot be reached, 130 interrupted.
    """
    with configuration_faults_end_it(), _service_errors_end_it(), _signals_as_interrupts():
        config = load_without_keys(config_path)
        folder = given["folder"] or config.state_dir / _FOLDER
        if resume:
            book = _resumed(folder, config, given, dry_run=dry_run)
            with _client(config) as client:
                code = _run(book, client, config, as_json=as_json)
        else:
            with _client(config) as client:
                begun = _begun(folder, client, config, given, dry_run=dry_run, as_json=as_json)
                code = 0 if begun is None else _run(begun, client, config, as_json=as_json)
    raise SystemExit(code)


def _client(config: GatewayConfig) -> SendingClient:
    from gateway.rollout.targets import rollout_client

    return rollout_client(config.service, config.auth.credentials(os.environ))


def _offers(client: SendingClient, config: GatewayConfig) -> frozenset[str]:
    from gateway.rollout.targets import with_retries

    configured = config.service.dialect.dialect().extensions
    return with_retries(client.discover) if configured is None else configured


def _begun(
    folder: Path, client: SendingClient, config: GatewayConfig, given: dict[str, Any], *, dry_run: bool, as_json: bool
) -> RolloutBook | None:
    """The state file of a new rollout; None after a dry run.

    Raises:
        ConfigurationError: something that was given cannot be; nothing was sent.
    """
    from gateway.cli.rollout_view import print_plan
    from gateway.rollout.book import Begun, RolloutBook
    from gateway.rollout.plan import in_order, in_waves, wave_sizes
    from gateway.rollout.results import results_of

    payload = given_payload(given["command"], given["command_file"])
    name = given["name"] or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError([f"--name {name!r}: use letters, digits, _ . and -, 64 at most"], "rollout")
    limits = given_limits(given, None)
    offers = _offers(client, config)
    results_of(client, offers, config.service.dialect.dialect())
    ttl_s = given_ttl(given["ttl_s"], limits.timeout_s, offers)
    ordered = in_order(name, given_targets(client, offers, given))
    waves = in_waves(ordered, wave_sizes(given["waves"] or _WAVES, len(ordered)))
    if dry_run:
        if as_json:
            print_json({"rollout": name, "waves": waves, "command_payload": payload, "ttl_s": ttl_s})
        else:
            print_plan(name, waves)
        return None
    begun = Begun(str(uuid.uuid4()), name, config.service.base_url, payload, ttl_s, time.time())
    book = RolloutBook.begin(folder / f"{name}.db", begun, limits, waves)
    click.echo(bounded(f"rollout {name}: {len(ordered)} device(s) in {len(waves)} wave(s)"), err=True)
    return book


def _resumed(folder: Path, config: GatewayConfig, given: dict[str, Any], *, dry_run: bool) -> RolloutBook:
    """The state file of a rollout that was begun.

    Raises:
        ConfigurationError: there is none, or it is for another service.
    """
    from gateway.rollout.book import RolloutBook

    if not given["name"]:
        raise click.UsageError("--resume needs the --name of the rollout")
    if dry_run:
        raise click.UsageError("--dry-run plans a new rollout: leave --resume out")
    fixed = [option for name, option in _ONLY_AT_BEGIN.items() if given[name]]
    if fixed:
        raise click.UsageError(f"a rollout that goes on has its command and its devices: leave out {', '.join(fixed)}")
    book = RolloutBook.open(folder / f"{given['name']}.db")
    begun = book.begun
    if begun.base_url != config.service.base_url:
        book.close()
        fault = f"this rollout was begun at {begun.base_url}, and the configuration names {config.service.base_url}"
        raise ConfigurationError([f"{fault}: use the configuration that it was begun with"], "rollout")
    book.set_limits(given_limits(given, book.limits))
    return book


def _run(book: RolloutBook, client: SendingClient, config: GatewayConfig, *, as_json: bool) -> int:
    """Carry it out and show its end; the exit code.

    Raises:
        ServiceError: see :meth:`gateway.rollout.rolling.Rollout.run`; the table was shown.
    """
    from agent.wire.extensions import IDEMPOTENCY_KEY
    from gateway.cli.rollout_view import ProgressView, print_end, sentence_of
    from gateway.cli.rollout_view import as_json as members_of
    from gateway.rollout.results import results_of
    from gateway.rollout.rolling import Ended, Rollout

    view = ProgressView()
    with book:
        begun = book.begun
        how, code = "interrupted", EXIT_INTERRUPTED
        reason: str | None = f"device-gateway rollout --resume --name {begun.name}"
        sentence = f"was interrupted; it goes on with: {reason}"
        try:
            offers = _offers(client, config)
            results = results_of(client, offers, config.service.dialect.dialect())
            has_keys = IDEMPOTENCY_KEY in offers
            ending = Rollout(book, client, results, has_keys=has_keys, show=view.show).run()
            how, reason, sentence = ending.how.value, ending.reason, sentence_of(ending)
            code = 0 if ending.how is Ended.DONE else EXIT_CHECK_FAILED
        except KeyboardInterrupt:
            pass
        finally:
            view.end()
            if as_json:
                print_json(members_of(book, begun, how, reason))
            else:
                print_end(book, begun, sentence)
    return code


@contextmanager
def _service_errors_end_it() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        click.echo(bounded(f"the service: {error}"), err=True)
        if error.advice is Advice.RETRY:
            raise SystemExit(EXIT_UNREACHABLE) from None
        is_locked_out = error.advice is Advice.REAUTHENTICATE
        raise SystemExit(EXIT_CONFIGURATION if is_locked_out else EXIT_CHECK_FAILED) from None


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end the rollout as Ctrl-C does: with its table. One that is ignored stays so, as by nohup."""

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    numbers = (number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN)
    held = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
