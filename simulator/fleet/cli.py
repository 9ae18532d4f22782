"""The commands of the fleet: ``init``, ``plan``, ``run``, ``report``, ``compare``, ``audit`` and ``cleanup``."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import click
from pydantic_core import to_json

from agent.errors import ConfigurationError
from agent.text import bounded
from agent.wire import paths
from agent.wire.encoding import parse_time
from agent.wire.server import LIST_PARAMETERS
from simulator.credentials import SERVICE_OPTIONS
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.run_audit import audit_run, audit_text, check_knows_devices, exit_code_of_audit, offers_of
from simulator.fleet.forecast import describe, forecast
from simulator.fleet.record import AuditRecord
from simulator.fleet.report.compare import compare_runs, print_comparison
from simulator.fleet.report.folder import RUN_FILE, read_record
from simulator.fleet.report.formatting import Tone, plural
from simulator.fleet.report.live import ConsoleView
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.progress import STANDARD_OUTPUT, ProgressFile, RunView, note
from simulator.fleet.report.prometheus import MetricsView
from simulator.fleet.report.summary import print_summary
from simulator.fleet.run.lifecycle import RunInterrupted, merge_audit, perform_run
from simulator.fleet.scenario.model import scenario_schema
from simulator.fleet.scenario.reading import ScenarioFile, read_scenario_file
from simulator.fleet.target.client import open_client
from simulator.fleet.target.provisioning import clean_up
from simulator.fleet.target.target import (
    Target,
    TargetOptions,
    find_offers,
    find_target,
    permit,
    running_local,
)
from simulator.interrupts import terminations_as_interrupts
from simulator.terminal import CommandLineError, Console, show_progress
from simulator.whole_files import cannot_write, write_whole

SCHEMA_FILE: Final = "fleet-scenario.schema.json"
_SCHEMA_LINE: Final = "# yaml-language-server: $schema="
"""Editors with the YAML language server read the schema's path after it, from the file's folder."""
_LEFT: Final = (
    "; the devices that are registered stay at the target: the next run takes them, and 'fleet-simulator cleanup' "
    "removes them"
)
_RUN_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_SCENARIO_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_TARGET: Final = (
    *SERVICE_OPTIONS,
    click.option(
        "--up",
        type=click.Path(file_okay=False, path_type=Path),
        help="Instead of address and keys: the folder that 'fleet-simulator up --data' was given.",
    ),
    click.option("--i-own-this-target", "owned", is_flag=True, help="Load a server that is not this machine."),
)

Permit = Callable[[str], None]
"""Returns when this address may be loaded; see :func:`~simulator.fleet.target.target.permit`."""


def takes_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the target; the command gets them as ``target`` and ``may_load``."""

    @functools.wraps(command)
    def wrapper(*, owned: bool, **given: Any) -> Any:
        names = [each.name for each in dataclasses.fields(TargetOptions)]
        options = TargetOptions(**{name: given.pop(name) for name in names if name in given})
        may_load = functools.partial(permit, owned=owned)
        return command(target=options, may_load=may_load, **given)

    return functools.reduce(lambda made, add: add(made), reversed(_TARGET), wrapper)


takes_python = click.option(
    "--allow-python", is_flag=True, help="Run the Python files that signals name, with all the rights that you have."
)


# --- before a run -----------------------------------------------------------------------------------------------------


def starter_folder() -> Traversable:
    """The scenarios to start from: beside this module in a wheel, where people look for them in a checkout."""
    packed = files("simulator.fleet.scenario") / "starters"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "configs" / "scenarios"


STARTERS: Final = sorted(
    item.name.removesuffix(".yaml") for item in starter_folder().iterdir() if item.name.endswith(".yaml")
)


@click.command("init")
@click.option(
    "--from",
    "starter",
    type=click.Choice(STARTERS),
    default="smoke",
    help="Which scenario to start from.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; by default the scenario's name and .yaml, here.",
)
def init_command(*, starter: str, out: Path | None) -> ExitCode:
    """Write a commented scenario to start from.

    Beside it goes the JSON Schema that its first line names: an editor with the YAML language server completes keys and
    marks faults by it, without a network. Exit codes: 0 written, 2 there is no such scenario, or the file is there
    already or cannot be written.
    """
    text, path = (starter_folder() / f"{starter}.yaml").read_text(encoding="utf-8"), out or Path(f"{starter}.yaml")
    if path.exists():
        raise ConfigurationError([f"{path} is there already; give another --out, or remove it"], "--out")
    try:
        write_whole(path.parent / SCHEMA_FILE, json.dumps(scenario_schema(), indent=2) + "\n")
        write_whole(path, f"{_SCHEMA_LINE}{SCHEMA_FILE}\n{text}")
    except OSError as error:
        raise ConfigurationError([cannot_write(path, error, "another --out")], "--out") from None
    click.echo(f"wrote {path}, and {SCHEMA_FILE} beside it; look at what it would do: fleet-simulator plan {path}")
    return ExitCode.GOOD


@click.command("plan")
@click.argument("scenario", type=_SCENARIO_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@takes_python
def plan_command(*, scenario: Path, as_json: bool, allow_python: bool) -> ExitCode:
    """Print what a run of SCENARIO would do, without doing it and without asking the target for anything.

    Devices, phases on a time line, requests per second by operation, sockets, faults, quota, and the digest of
    scenario and seed. Exit codes: 0 it can be run, 2 it has faults, all of which are printed with line and column.
    """
    figures = forecast(_read(scenario, allow_python=allow_python).scenario)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(describe(figures)))
    return ExitCode.GOOD


def _read(path: Path, *, allow_python: bool) -> ScenarioFile:
    try:
        return read_scenario_file(path, allow_python=allow_python)
    except ConfigurationError as error:  # each fault on a line of its own
        raise CommandLineError("\n".join(f"{error.source}: {fault}" for fault in error.faults)) from None


# --- a run ------------------------------------------------------------------------------------------------------------


@click.command("run")
@click.argument("scenario", type=_SCENARIO_FILE)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for record, seconds, ledgers and reports; fleet-runs/NAME-TIME by default.",
)
@takes_target
@click.option("--gateway", "gateway_url", help="Where devices that go through a gateway of your own reach it.")
@click.option(
    "--gateway-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Its configuration on this machine: each device gets a token by it.",
)
@click.option("--broker", "broker_url", help="Its broker for MQTT: mqtt://host:port, or mqtts://host:port with TLS.")
@click.option("--local", is_flag=True, help="Start a service for this run on this machine, and end it afterwards.")
@click.option("--audit/--no-audit", default=True, help="Keep ledgers, and read everything back at the end.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve the figures so far to Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port.",
)
@click.option(
    "--progress",
    metavar="FILE",
    help="Write the live figures as JSON lines, one a second and one for each event, while the run goes on; - is "
    "standard output, and the live view moves to standard error.",
)
@click.option(
    "--cluster",
    metavar="HOST:PORT|auto",
    help="Make the load on the machines of a Ray cluster: the address of its head, or auto for the cluster that this "
    "machine belongs to. Needs the extra 'cluster'.",
)
@click.option("--quiet", is_flag=True, help="Show nothing; the exit code says how it ended.")
@takes_python
def run_command(
    *,
    scenario: Path,
    out: Path | None,
    target: TargetOptions,
    may_load: Permit,
    local: bool,
    audit: bool,
    metrics_port: int | None,
    progress: str | None,
    cluster: str | None,
    quiet: bool,
    allow_python: bool,
) -> ExitCode:
    """Run a fleet against a service, as SCENARIO says, and prove that nothing was lost.

    Ctrl-C ends it in order, with a report. Exit codes: 0 passed, 1 a threshold or a check failed, 2 usage, 3
    inconclusive (the generator was the limit, a worker died, or a report could not be written), 4 data lost or
    changed, 5 the target cannot be reached or went away, or the record could not be written, 130 ended by Ctrl-C.
    """
    with _ended_by_hand(local=local), terminations_as_interrupts(), ExitStack() as ends:
        takes_output = progress == STANDARD_OUTPUT
        if local and target != TargetOptions():
            raise CommandLineError("--local starts its own service: leave the other target out")
        file = _read(scenario, allow_python=allow_python)
        settings = file.scenario.target
        if not settings.uses_gateway and (target.gateway_url or target.gateway_config or target.broker_url):
            fix = "leave out --gateway, --gateway-config and --broker, or write 'through: gateway' or 'transport: mqtt'"
            raise CommandLineError(f"{scenario} has no devices behind a gateway: {fix}")
        if cluster is not None:
            _check_cluster(file, local=local)
        folder = out or Path("fleet-runs") / f"{file.scenario.scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
        if local:
            service = running_local(folder / "up", gateway=settings.uses_gateway)
            way = ends.enter_context(service)
        else:
            way = find_target(target, settings, file.folder)
        for address in sorted(way.addresses):
            may_load(address)
        console = Console(stderr=takes_output)

        shown = RunView() if quiet else ConsoleView(console)
        views = [shown]
        if progress is not None:
            views.append(ProgressFile(progress, lambda text: shown.show(note(text, Tone.WARN))))
        if metrics_port is not None:
            views.append(MetricsView(metrics_port, lambda text: shown.show(note(text))))
        record = perform_run(file, way, folder, views, is_audited=audit, cluster=cluster)
    if not quiet and (folder / "report.html").exists():  # a disk that is full may have refused it
        click.echo(bounded(f"report: {folder / 'report.html'}"), err=takes_output)
    return ExitCode(record.verdict.exit_code)


def _check_cluster(file: ScenarioFile, *, local: bool) -> None:
    """Refuse what a cluster cannot play: devices behind a gateway, or a service that only this machine reaches."""
    if local:
        fix = "leave out --cluster, or give --base-url of a service that the cluster's machines reach"
        raise CommandLineError(f"--local starts a service that only this machine reaches: {fix}")
    if file.scenario.target.uses_gateway:
        fix = "leave out --cluster, or take 'transport: http_poll' and 'through: service'"
        raise CommandLineError(f"behind a gateway, which makes tokens on its own machine, all workers are here: {fix}")


@contextmanager
def _ended_by_hand(*, local: bool) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM while no load is under way: one sentence about what is left, and exit code 130."""
    try:
        yield
    except RunInterrupted as end:
        left = ""
        if end.registered:
            left = "; the service of this run has ended with them" if local else _LEFT
        click.echo(bounded(f"{end}{left}"), err=True)
        raise click.exceptions.Exit(int(ExitCode.INTERRUPTED)) from None
    except KeyboardInterrupt:
        click.echo("ended by hand: no load was under way", err=True)
        raise click.exceptions.Exit(int(ExitCode.INTERRUPTED)) from None


# --- after a run ------------------------------------------------------------------------------------------------------


@click.command("report")
@click.argument("folder", type=_RUN_FOLDER)
def report_command(*, folder: Path) -> ExitCode:
    """Make all reports of a run anew, also of one that was killed or still goes on.

    FOLDER is what a run was given with --out. Made are report.html, summary.json, junit.xml, and the tables figures and
    seconds as CSV, out of run.json and seconds.jsonl.

    Exit codes: 0 they are made, whatever the run's verdict; 2 the folder holds no run, or a damaged one; 5 a file could
    not be written.
    """
    record, missing = make_reports(folder)
    print_summary(Console(), record)
    page = folder / "report.html"
    if page.exists() and not any(str(page) in sentence for sentence in missing):
        click.echo(f"report: {page}")
    for sentence in missing:
        click.echo(bounded(f"Error: {sentence}; make room there and run it again"), err=True)
    return ExitCode.UNREACHABLE if missing else ExitCode.GOOD


@click.command("compare")
@click.argument("a", type=_RUN_FOLDER)
@click.argument("b", type=_RUN_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare_command(*, a: Path, b: Path, as_json: bool) -> ExitCode:
    """Hold the run in folder B against the one in folder A, both of one scenario.

    A rate or a time counts as better or worse when it differs by more than a tenth, and a share of errors when it
    differs by more than one percentage point.

    Exit codes: 0 B is not worse in anything, 1 it is, 2 usage, or runs of different scenarios, 3 a run proves nothing,
    such as one whose generator was the limit.
    """
    found = compare_runs(a, b)
    if as_json:
        click.echo(to_json(found, indent=1, inf_nan_mode="null").decode())
    else:
        print_comparison(Console(), found)
    if found["unjudged"]:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CHECK_FAILED if found["broken"] or found["worse"] else ExitCode.GOOD


@click.command("audit")
@click.argument("run", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@takes_target
@click.option("--json", "as_json", is_flag=True, help="Print the audit as JSON.")
def audit_command(*, run: Path, target: TargetOptions, may_load: Permit, as_json: bool) -> ExitCode:
    """Audit a finished run again: read back everything that its folder DIR has ledgers of, and compare.

    The record of the run gets the audit, its verdict is given anew, and its reports are made again.

    Exit codes: 0 nothing is wrong, 1 readings were refused although the scenario plans no such fault, 2 usage or wrong
    keys, 3 not everything could be audited, 4 data lost, doubled, changed or unknown, 5 the target cannot be
    reached, or nothing is wrong and the record or a report could not be written.
    """
    has_record = (run / RUN_FILE).exists()
    ended_at = read_record(run).ended_at if has_record else None
    ended_s = parse_time(ended_at) if ended_at else time.time() if has_record else None
    way = find_target(target)
    may_load(way.base_url)
    audit = asyncio.run(_audit(run, way, ended_s))
    told, unwritten = merge_audit(run, audit) if has_record else ("", ())
    click.echo(json.dumps(dataclasses.asdict(audit), indent=1) if as_json else audit_text(audit))
    for sentence in filter(None, (told, *unwritten)):
        click.echo(bounded(sentence), err=True)
    code = exit_code_of_audit(audit)
    return ExitCode.UNREACHABLE if unwritten and code == ExitCode.GOOD else code


async def _audit(run: Path, way: Target, ended_s: float | None) -> AuditRecord:
    with show_progress("devices read back") as on_progress:
        offers = offers_of(run)
        async with open_client(way, offers) as client:
            # Wrong keys and wrong addresses are reported at once.
            await client.ask("GET", f"{paths.DEVICES}?limit=1" if LIST_PARAMETERS in offers else paths.DEVICES)
            await check_knows_devices(run, client.ask)
            return await audit_run(run, client.pages, on_progress, ended_s=ended_s)


@click.command("cleanup")
@takes_target
@click.option(
    "--prefix",
    help="Only devices whose identifier begins with this, as fleet.prefix of a scenario has it, and the products "
    "that have no device left then.  [default: all that carry the mark]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def cleanup_command(*, target: TargetOptions, may_load: Permit, prefix: str | None, dry_run: bool) -> ExitCode:
    """Take away what fleet runs made on a target: products that carry their mark, with their devices.

    What belongs to anybody else is left alone. Exit codes: 0 nothing is left, 2 usage or wrong keys, 5 the target
    cannot be reached.
    """
    if prefix is not None and not prefix.strip():
        raise CommandLineError("--prefix is empty: give the first characters of the identifiers, or leave it out")
    way = find_target(target)
    may_load(way.base_url)

    async def clean() -> tuple[int, int, tuple[str, ...]]:
        offers = find_offers(way)
        with show_progress("removed") as on_progress:
            async with open_client(way, offers) as client:
                return await clean_up(client, on_progress, prefix=prefix or "", dry_run=dry_run)

    devices, products, names = asyncio.run(clean())
    verb = "would be removed" if dry_run else "removed"
    of = f" ({', '.join(names)})" if names else ""
    click.echo(f"{plural(devices, 'device')} of {plural(products, 'product')}{of} {verb}")
    return ExitCode.GOOD
