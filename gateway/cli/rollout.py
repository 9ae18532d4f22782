"""``device-gateway rollout``."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from agent.cli.program import json_option, print_json, print_table
from agent.errors import EXIT_CHECK_FAILED, EXIT_INTERRUPTED, ConfigurationError, InvalidMessage
from agent.text import bounded
from agent.wire.json_text import parse_object
from agent.wire.limits import COMMAND_PAYLOAD_BYTES, TTL_MAX_S
from agent.wire.server import COMMAND_TTL, IDEMPOTENCY_KEY
from gateway.cli.options import complain, errors_end_it, gateway_config_option, load, read_duration, read_lines
from gateway.client import OperatorClient
from gateway.config import GatewayConfig
from gateway.devices import with_retries
from gateway.rollout import (
    Plan,
    Results,
    Rollout,
    RolloutFile,
    check_devices,
    devices_of_product,
    in_waves,
    read_share,
    rollout_client,
    summary,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WAVES, _FAILED, _SILENT, _TIMEOUT_S = "1,5%,25%,all", "5%", "20%", 1800.0
_FIRST_IDS: Final = 3


@click.command()
@gateway_config_option
@json_option
@click.option("--command", help="The command_payload that each device gets: a JSON object.")
@click.option("--product-id", help="All devices of this product.")
@click.option(
    "--devices",
    "listed",
    type=click.File(encoding="utf-8-sig"),
    help="Instead: the devices of a file, one id in each line; - is standard input.",
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
    "--max-failed",
    help=f"Stop when more than this share of a wave's devices fails or rejects the command. Default: {_FAILED}.",
)
@click.option(
    "--max-silent",
    help=f"Stop when more than this share of a wave's devices gives no result in time. Default: {_SILENT}.",
)
@click.option("--name", help="Of this rollout: letters, digits, _ . - . Default: the time of its begin.")
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
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, signal.default_int_handler)
    try:
        with errors_end_it():
            config = load(config_path)
            file = _resumed(config, given, dry_run=dry_run) if resume else None
            with rollout_client(config.service, config.auth.credentials(os.environ)) as client:
                if file is None:
                    file = _begun(client, config, given, dry_run=dry_run, as_json=as_json)
                code = 0 if file is None else _run(file, client, config, as_json=as_json)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise SystemExit(code)


def _begun(
    client: OperatorClient, config: GatewayConfig, given: dict[str, Any], *, dry_run: bool, as_json: bool
) -> RolloutFile | None:
    """The state file of a new rollout; None after a dry run.

    Raises:
        ConfigurationError: something that was given cannot be; nothing was sent.
    """
    name = given["name"] or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError([f"--name {name!r}: use letters, digits, _ . and -, 64 at most"], "rollout")
    try:
        payload = parse_object((given["command"] or "").encode(), max_bytes=COMMAND_PAYLOAD_BYTES)
    except (InvalidMessage, UnicodeEncodeError) as error:
        fault = f'--command: {error}; give a JSON object such as {{"command":"ping"}}'
        raise ConfigurationError([fault], "rollout") from None
    product_id, listed = given["product_id"], given["listed"]
    if (product_id is None) == (listed is None):
        raise click.UsageError("name the devices: either --product-id, or --devices")
    offers = _offers(client, config)
    timeout_s = given["timeout_s"] or _TIMEOUT_S
    plan = Plan(
        rollout_id=str(uuid.uuid4()),
        name=name,
        base_url=config.service.base_url,
        command_payload=payload,
        # So that no device begins after it has counted as silent.
        ttl_s=max(1, round(min(timeout_s, TTL_MAX_S))) if COMMAND_TTL in offers else None,
        max_failed=read_share(given["max_failed"] or _FAILED),
        max_silent=read_share(given["max_silent"] or _SILENT),
        timeout_s=timeout_s,
    )
    Results(client, offers, config.service.dialect.dialect())
    if listed is None:
        targets = devices_of_product(client, offers, product_id)
    else:
        targets = list(dict.fromkeys(read_lines(listed, "--devices")))
        check_devices(client, targets)
    waves = in_waves(name, targets, given["waves"] or _WAVES)
    if dry_run:
        if as_json:
            print_json({"rollout": name, "waves": waves, "command_payload": payload, "ttl_s": plan.ttl_s})
        else:
            _print_plan(name, waves)
        return None
    file = RolloutFile(_path(config, name), (plan, waves))
    complain(f"rollout {name}: {len(targets)} device(s) in {len(waves)} wave(s)")
    return file


def _resumed(config: GatewayConfig, given: dict[str, Any], *, dry_run: bool) -> RolloutFile:
    """The state file of a rollout that was begun.

    Raises:
        ConfigurationError: there is none, or it is for another service.
    """
    if not given["name"] or dry_run:
        raise click.UsageError("--resume needs the --name of the rollout, and --dry-run plans a new one")
    options = {"--command": "command", "--product-id": "product_id", "--waves": "waves", "--devices": "listed"}
    fixed = [option for option, name in options.items() if given[name]]
    if fixed:
        raise click.UsageError(f"a rollout that goes on has its command and its devices: leave out {', '.join(fixed)}")
    file = RolloutFile(_path(config, given["name"]))
    if file.plan.base_url != config.service.base_url:
        file.close()
        fault = f"this rollout was begun at {file.plan.base_url}, and the configuration names {config.service.base_url}"
        raise ConfigurationError([f"{fault}: use the configuration that it was begun with"], "rollout")
    shares = {each: None if given[each] is None else read_share(given[each]) for each in ("max_failed", "max_silent")}
    file.replan(timeout_s=given["timeout_s"], **shares)
    return file


def _run(file: RolloutFile, client: OperatorClient, config: GatewayConfig, *, as_json: bool) -> int:
    """Carry it out and show its end; the exit code.

    Raises:
        ServiceError: see :meth:`gateway.rollout.Rollout.run`; the table was shown.
    """
    reason: str | None = f"device-gateway rollout --resume --name {file.plan.name}"
    ended, code = "interrupted", EXIT_INTERRUPTED
    with file:
        try:
            offers = _offers(client, config)
            results = Results(client, offers, config.service.dialect.dialect())
            reason = Rollout(file, client, results, _Progress().show, has_keys=IDEMPOTENCY_KEY in offers).run()
            ended, code = ("done", 0) if reason is None else ("stopped", EXIT_CHECK_FAILED)
        except KeyboardInterrupt:
            pass
        finally:
            found = summary(file, ended, reason)
            if as_json:
                print_json(found)
            else:
                _print_end(found)
    return code


def _offers(client: OperatorClient, config: GatewayConfig) -> frozenset[str]:
    """The extensions of the service, as the configuration or the service itself names them."""
    configured = config.service.dialect.dialect().extensions
    return with_retries(client.discover).extensions if configured is None else configured


def _path(config: GatewayConfig, name: str) -> Path:
    return config.state_dir / "rollouts" / f"{name}.db"


# --- what is shown ----------------------------------------------------------------------------------------------------


class _Progress:
    """Shows where a rollout is on standard error: a line for each quarter of a wave, and for what holds it up."""

    def __init__(self) -> None:
        self._shown: tuple[int, int, str] = (0, -1, "")

    def show(self, wave: int, counts: Counter[str], note: str) -> None:
        """Show it, where it differs enough from the last one."""
        over = counts["succeeded"] + counts["failed"] + counts["silent"]
        now = (wave, over * 4 // max(1, counts.total()), note)
        if now != self._shown:
            self._shown = now
            words = f"{counts['succeeded']} of {counts.total()} succeeded, {counts['failed']} failed"
            complain(f"wave {wave}: {note or words}")


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
    for number, each in enumerate(found["waves"], 1):
        silent, unsent = each["silent"] + each["sent"], each["planned"] + each["sending"]
        cells = (number, sum(each.values()), each["succeeded"], each["failed"], silent, unsent)
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
