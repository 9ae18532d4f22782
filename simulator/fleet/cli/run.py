"""``fleet-simulator run``: a click command, no logic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from agent.errors import ConfigurationError
from agent.text import bounded
from simulator.exit_codes import ExitCode
from simulator.fleet.cli.options import (
    check_cluster,
    read_or_refuse,
    takes_cluster,
    takes_python,
    takes_target,
)
from simulator.fleet.report.folder import record_text
from simulator.fleet.report.formatting import Tone
from simulator.fleet.report.live import ConsoleView
from simulator.fleet.report.progress import STANDARD_OUTPUT, ProgressFile, RunView, note
from simulator.fleet.report.prometheus import MetricsView
from simulator.fleet.run.fleet_run import RunInterrupted, RunOptions, perform_run
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.local import running_local
from simulator.fleet.target.safety import permit, read_targets
from simulator.fleet.target.target import KeyPairFile, Target, TargetOptions, find_target, target_of
from simulator.interrupts import terminations_as_interrupts
from simulator.terminal import Console

_LEFT = (
    "; the devices that are registered stay at the target: the next run takes them, and 'fleet-simulator cleanup' "
    "removes them"
)


@click.command("run")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for record, seconds, ledgers and reports; fleet-runs/NAME-TIME by default.",
)
@takes_target
@click.option("--local", is_flag=True, help="Start a service for this run on this machine, and end it afterwards.")
@click.option("--rate-limit", type=click.IntRange(min=0), help="With --local: its quota; 0, the default, is no limit.")
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
@takes_cluster
@click.option("--quiet", is_flag=True, help="Show nothing; the exit code says how it ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run as JSON.")
@takes_python
def run_command(
    *,
    scenario: Path,
    out: Path | None,
    target: TargetOptions,
    targets: Path | None,
    owned: bool,
    local: bool,
    rate_limit: int | None,
    audit: bool,
    metrics_port: int | None,
    progress: str | None,
    cluster: str | None,
    quiet: bool,
    as_json: bool,
    allow_python: bool,
) -> ExitCode:
    """Run a fleet against a service, as SCENARIO says, and prove that nothing was lost.

    Ctrl-C ends it in order, with a report. Exit codes: 0 passed, 1 a threshold or a check failed, 2 usage, 3
    inconclusive (the generator was the limit, a worker died, or a report could not be written), 4 data lost or
    changed, 5 the target cannot be reached or went away, or the record could not be written, 130 ended by Ctrl-C.
    """
    with _ended_by_hand(local=local), terminations_as_interrupts(), ExitStack() as ends:
        takes_output = progress == STANDARD_OUTPUT
        if takes_output and as_json:
            raise ConfigurationError(
                ["--progress -: --json prints to standard output, too: give it a file"], "--progress"
            )
        if rate_limit is not None and not local:
            fix = "it is the quota of the service that --local starts: give --local, or leave it out"
            raise ConfigurationError([f"--rate-limit: {fix}"], "--rate-limit")
        if local and target != TargetOptions():
            raise ConfigurationError(["--local starts its own service: leave the other target out"], "target")
        file = read_or_refuse(scenario, allow_python=allow_python)
        check_cluster(cluster, file, local=local)
        folder = out or Path("fleet-runs") / f"{file.scenario.scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
        if local:
            gateway = file.scenario.target.uses_gateway
            service = running_local(folder / "up", rate_limit=rate_limit or 0, gateway=gateway)
            way = target_of(ends.enter_context(service))
        else:
            way = _find(target, file)
        listed = read_targets(targets) if targets else ()
        broker = file.scenario.target.broker
        addresses = {*way.addresses, *([f"mqtt://{broker.host}"] if broker else [])}
        permissions = tuple(permit(address, listed, owned=owned) for address in sorted(addresses))
        console = Console(stderr=as_json or takes_output)

        shown = RunView() if quiet else ConsoleView(console)
        views = [shown]
        if progress is not None:
            views.append(ProgressFile(progress, lambda text: shown.show(note(text, Tone.WARN))))
        if metrics_port is not None:
            views.append(MetricsView(metrics_port, lambda text: shown.show(note(text))))
        options = RunOptions(file, way, folder, permissions, audit, cluster)
        record = perform_run(options, views)
    if as_json:
        click.echo(record_text(record), nl=False)
    elif not quiet and (folder / "report.html").exists():  # a disk that is full may have refused it
        click.echo(bounded(f"report: {folder / 'report.html'}"), err=takes_output)
    return ExitCode(record.verdict.exit_code)


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


def _find(target: TargetOptions, file: ScenarioFile) -> Target:
    settings = file.scenario.target
    keys = [KeyPairFile(pair.api_key, file.folder / pair.secret_key_file) for pair in settings.keys]
    ca_file = None if settings.tls is None or settings.tls.ca_file is None else file.folder / settings.tls.ca_file
    return find_target(target, settings.base_url, keys, ca_file)
