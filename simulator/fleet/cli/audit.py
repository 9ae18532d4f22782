"""``fleet-simulator audit``: a click command, no logic."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from agent.errors import ConfigurationError, InvalidMessage
from agent.text import bounded
from agent.wire import paths
from agent.wire.server import LIST_PARAMETERS
from agent.wire.times import parse_time
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.audit_text import lines_of
from simulator.fleet.audit.run_audit import AuditSettings, audit_run, exit_code_of_audit, offers_of
from simulator.fleet.cli.options import takes_target
from simulator.fleet.record import AuditRecord, RunRecord
from simulator.fleet.report.folder import RUN_FILE, read_record
from simulator.fleet.run.fleet_run import Merged, merge_audit
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.safety import permit, read_targets
from simulator.fleet.target.target import Target, TargetOptions, find_target
from simulator.terminal import show_progress


@click.command("audit")
@click.argument("run", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@takes_target
@click.option("--json", "as_json", is_flag=True, help="Print the audit as JSON.")
def audit_command(
    *,
    run: Path,
    target: TargetOptions,
    targets: Path | None,
    owned: bool,
    as_json: bool,
) -> ExitCode:
    """Audit a finished run again: read back everything that its folder DIR has ledgers of, and compare.

    The record of the run gets the audit, its verdict is given anew, and its reports are made again.

    Exit codes: 0 nothing is wrong, 1 readings were refused although the scenario plans no such fault, 2 usage or wrong
    keys, 3 not everything could be audited, 4 data lost, doubled, changed or unknown, 5 the target cannot be
    reached, or nothing is wrong and the record or a report could not be written.
    """
    settings = AuditSettings()
    merged = Merged(())
    if (run / RUN_FILE).exists():
        settings = replace(settings, ended_s=_end_of(read_record(run), run))
    way = find_target(target)
    permit(way.base_url, read_targets(targets) if targets else (), owned=owned)
    audit = asyncio.run(_audit(run, way, settings))
    if (run / RUN_FILE).exists():
        merged = merge_audit(run, audit)
    click.echo(json.dumps(asdict(audit), indent=1) if as_json else "\n".join(lines_of(audit)))
    for sentence in (*merged.sentences, *merged.missing):
        click.echo(bounded(sentence), err=True)
    code = exit_code_of_audit(audit)
    return ExitCode.UNREACHABLE if merged.missing and code == ExitCode.GOOD else code


def _end_of(record: RunRecord, run: Path) -> float:
    try:
        return parse_time(record.ended_at) if record.ended_at else time.time()
    except InvalidMessage as error:
        raise ConfigurationError([f"ended_at is no time: {error}"], str(run / RUN_FILE)) from None


async def _audit(run: Path, way: Target, settings: AuditSettings) -> AuditRecord:
    with show_progress("devices read back") as on_progress:
        offers = offers_of(run)
        async with open_client(way.base_url, Keyring(way.keys), offers=offers, ca_file=way.ca_file) as client:
            # Wrong keys and wrong addresses are reported at once.
            await client.ask("GET", f"{paths.DEVICES}?limit=1" if LIST_PARAMETERS in offers else paths.DEVICES)
            return await audit_run(run, client.pages, settings, on_progress)
