"""``device-gateway rollout``."""

from __future__ import annotations

import os
import re
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agent.cli.options import configuration_faults_end_it, json_option, print_json, print_table
from agent.error_text import bounded
from agent.errors import Advice, ConfigurationError, InvalidMessage, ServiceError
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, EXIT_INTERRUPTED, EXIT_UNREACHABLE
from agent.terminal import escape, unescaped
from gateway.cli.options import gateway_config_option, load_without_keys, read_duration

if TYPE_CHECKING:
    from agent.wire.sending import SendingClient
    from gateway.config import GatewayConfig
    from gateway.rollout import Limits, RolloutFile

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WAVES, _FAILED, _SILENT, _TIMEOUT_S = "1,5%,25%,all", "5%", "20%", 1800.0
_FIRST_IDS: Final = 3
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
    help=f"Stop when more than this share of a wave's devices fails or rejects the command. Default: {_FAILED}.",
)
@click.option(
    "--max-silent",
    help=f"Stop when more than this share of a wave's devices gives no result in time. Default: {_SILENT}.",
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
    from gateway.rollout import again, rollout_client

    with configuration_faults_end_it(), _service_errors_end_it(), _signals_as_interrupts():
        config = load_without_keys(config_path)
        folder = given["folder"] or config.state_dir / "rollouts"
        file = _resumed(folder, config, given, dry_run=dry_run) if resume else None
        with rollout_client(config.service, config.auth.credentials(os.environ)) as client:
            configured = config.service.dialect.dialect().extensions

            def offers() -> frozenset[str]:
                return again(client.discover) if configured is None else configured

            if file is None:
                known = offers()
                file = _begun(folder, client, known, config, given, dry_run=dry_run, as_json=as_json)
                if file is None:
                    raise SystemExit(0)
            code = _run(file, client, offers, config, as_json=as_json)
    raise SystemExit(code)


def _begun(
    folder: Path,
    client: SendingClient,
    offers: frozenset[str],
    config: GatewayConfig,
    given: dict[str, Any],
    *,
    dry_run: bool,
    as_json: bool,
) -> RolloutFile | None:
    """The state file of a new rollout; None after a dry run.

    Raises:
        ConfigurationError: something that was given cannot be; nothing was sent.
    """
    from gateway.rollout import Begun, Results, RolloutFile, in_waves

    payload = _payload(given["command"], given["command_file"])
    name = given["name"] or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError([f"--name {name!r}: use letters, digits, _ . and -, 64 at most"], "rollout")
    limits = _limits(given, None)
    Results(client, offers, config.service.dialect.dialect())
    ttl_s = _ttl(given["ttl_s"], limits.timeout_s, offers)
    waves = in_waves(name, _targets(client, offers, given), given["waves"] or _WAVES)
    if dry_run:
        if as_json:
            print_json({"rollout": name, "waves": waves, "command_payload": payload, "ttl_s": ttl_s})
        else:
            _print_plan(name, waves)
        return None
    begun = Begun(str(uuid.uuid4()), name, config.service.base_url, payload, ttl_s)
    file = RolloutFile(folder / f"{name}.db", (begun, limits, waves))
    click.echo(bounded(f"rollout {name}: {sum(map(len, waves))} device(s) in {len(waves)} wave(s)"), err=True)
    return file


def _resumed(folder: Path, config: GatewayConfig, given: dict[str, Any], *, dry_run: bool) -> RolloutFile:
    """The state file of a rollout that was begun.

    Raises:
        ConfigurationError: there is none, or it is for another service.
    """
    from gateway.rollout import RolloutFile

    if not given["name"]:
        raise click.UsageError("--resume needs the --name of the rollout")
    if dry_run:
        raise click.UsageError("--dry-run plans a new rollout: leave --resume out")
    fixed = [option for name, option in _ONLY_AT_BEGIN.items() if given[name]]
    if fixed:
        raise click.UsageError(f"a rollout that goes on has its command and its devices: leave out {', '.join(fixed)}")
    file = RolloutFile(folder / f"{given['name']}.db")
    if file.begun.base_url != config.service.base_url:
        file.close()
        fault = (
            f"this rollout was begun at {file.begun.base_url}, and the configuration names {config.service.base_url}"
        )
        raise ConfigurationError([f"{fault}: use the configuration that it was begun with"], "rollout")
    file.set_limits(_limits(given, file.limits))
    return file


def _run(file: RolloutFile, client: SendingClient, offers: Any, config: GatewayConfig, *, as_json: bool) -> int:
    """Carry it out and show its end; the exit code.

    Raises:
        ServiceError: see :meth:`gateway.rollout.Rollout.run`; the table was shown.
    """
    from gateway.rollout import Results, Rollout, summary

    progress = _Progress()
    with file:
        reason: str | None = f"device-gateway rollout --resume --name {file.begun.name}"
        ended, code = "interrupted", EXIT_INTERRUPTED
        try:
            known = offers()
            results = Results(client, known, config.service.dialect.dialect())
            reason = Rollout(file, client, results, known, progress.show).run()
            ended, code = ("done", 0) if reason is None else ("stopped", EXIT_CHECK_FAILED)
        except KeyboardInterrupt:
            pass
        finally:
            progress.end()
            found = summary(file, ended, reason)
            if as_json:
                print_json(found)
            else:
                _print_end(found)
    return code


# --- what was given ---------------------------------------------------------------------------------------------------


def _payload(text: str | None, path: Path | None) -> dict[str, Any]:
    from agent.wire.json_text import parse_object
    from agent.wire.limits import COMMAND_PAYLOAD_BYTES

    if (text is None) == (path is None):
        raise click.UsageError('give the command: either --command \'{"command":"ping"}\' or --command-file FILE')
    try:
        if path is None:
            raw = (text or "").encode()
        else:
            raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return parse_object(raw, max_bytes=COMMAND_PAYLOAD_BYTES)
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"], "--command-file") from None
    except (InvalidMessage, UnicodeEncodeError) as error:
        where = "--command" if path is None else str(path)
        fault = f'{where}: {error}; give a JSON object such as {{"command":"ping"}}'
        raise ConfigurationError([fault], "rollout") from None


def _targets(client: SendingClient, offers: frozenset[str], given: dict[str, Any]) -> list[str]:
    from gateway.rollout import devices_of_product, known_devices

    product_id, device_ids, path = given["product_id"], list(given["device_ids"]), given["devices_file"]
    if bool(product_id) == bool(device_ids or path):
        raise click.UsageError("name the devices: either --product-id, or --device-id and --devices")
    if product_id:
        return devices_of_product(client, offers, product_id)
    if path:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            fault = f"{path} cannot be read: {error}; write one device id in each line, as UTF-8"
            raise ConfigurationError([fault], "--devices") from None
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise ConfigurationError([f"{path} has no device id: write one in each line"], "--devices")
        device_ids += found
    return known_devices(client, device_ids)


def _limits(given: dict[str, Any], before: Limits | None) -> Limits:
    """When the rollout stops; what was not given is as ``before``, or has its default."""
    from gateway.rollout import Limits, read_share

    start = before or Limits(read_share(_FAILED), read_share(_SILENT), _TIMEOUT_S)
    failed, silent = given["max_failed"], given["max_silent"]
    return Limits(
        start.failed if failed is None else read_share(failed),
        start.silent if silent is None else read_share(silent),
        given["timeout_s"] or start.timeout_s,
    )


def _ttl(given_s: float | None, timeout_s: float, offers: frozenset[str]) -> int | None:
    """How long a command waits for its device, seconds; None where this service takes no such bound."""
    from agent.wire.extensions import COMMAND_TTL
    from agent.wire.limits import TTL_MAX_S

    if COMMAND_TTL not in offers:
        if given_s is not None:
            raise ConfigurationError(["--ttl: this service takes none: leave it out"], "rollout")
        return None
    if given_s is not None and given_s > TTL_MAX_S:
        raise ConfigurationError([f"--ttl: {TTL_MAX_S // 3600}h at most"], "rollout")
    return max(1, round(min(given_s or timeout_s, TTL_MAX_S)))


# --- what is shown ----------------------------------------------------------------------------------------------------


class _Progress:
    """Shows where a rollout is on standard error: one line that changes on a terminal, else a line for each news."""

    def __init__(self) -> None:
        self._out = unescaped(sys.stderr)
        self._is_terminal = self._out.isatty()
        self._shown: tuple[int, int, str] = (0, -1, "")

    def show(self, wave: int, waves: int, counts: Counter[str], note: str) -> None:
        """Show it, where it differs enough from the last one."""
        over = counts["succeeded"] + counts["failed"] + counts["silent"]
        words = f"{counts['succeeded']} of {counts.total()} succeeded, {counts['failed']} failed, {counts['sent']} open"
        text = escape(bounded(f"wave {wave} of {waves}: {note or words}"))
        if self._is_terminal:
            self._out.write(f"\r\x1b[2K{text[: os.get_terminal_size(self._out.fileno()).columns - 1]}")
            self._out.flush()
            return
        now = (wave, over * 4 // max(1, counts.total()), note)
        if now != self._shown:
            self._shown = now
            self._out.write(f"{text}\n")
            self._out.flush()

    def end(self) -> None:
        """Leave the line that changes."""
        if self._is_terminal:
            self._out.write("\r\x1b[2K")
            self._out.flush()


def _some(devices: list[str]) -> str:
    more = f" and {len(devices) - _FIRST_IDS} more" if len(devices) > _FIRST_IDS else ""
    return f"{', '.join(devices[:_FIRST_IDS])}{more}"


def _print_plan(name: str, waves: list[list[str]]) -> None:
    reached, total, rows = 0, sum(map(len, waves)), []
    for number, devices in enumerate(waves, 1):
        reached += len(devices)
        rows.append((str(number), str(len(devices)), f"{100 * reached / total:.3g} %", _some(devices)))
    print_table(("wave", "devices", "then have it", "which"), rows)
    click.echo(f"rollout {name}: {total} device(s) in {len(waves)} wave(s); nothing was sent")


def _print_end(found: dict[str, Any]) -> None:
    """The table of a rollout, what went wrong and where, and a last sentence."""
    rows = []
    for number, counts in enumerate(found["waves"], 1):
        cells = (
            number,
            sum(counts.values()),
            counts["succeeded"],
            counts["failed"],
            counts["silent"] + counts["sent"],
            counts["planned"] + counts["sending"],
        )
        rows.append(tuple(map(str, cells)))
    print_table(("wave", "devices", "succeeded", "failed", "no result", "not sent"), rows)
    wrong: dict[tuple[str, str], list[str]] = {}
    for each in found["devices"]:
        if each["state"] in {"failed", "silent", "sent"}:
            what = "failed" if each["state"] == "failed" else "no result"
            wrong.setdefault((what, each["reason"] or "nothing came so far"), []).append(each["device_id"])
    for (what, reason), devices in wrong.items():
        click.echo(bounded(f"{what}, {len(devices)}: {reason}: {_some(devices)}"))
    sentence = {
        "done": "is done",
        "stopped": f"stopped: {found['reason']}",
        "interrupted": f"was interrupted; it goes on with: {found['reason']}",
    }[found["ended"]]
    click.echo(bounded(f"rollout {found['rollout']} {sentence}"))


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
