"""``fleet-simulator demo``: play the story, prove it, write the report, print the verdict."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any, Final

import click
from rich.markup import escape

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError
from simulator.demo.folder import DemoFolder, open_folder
from simulator.demo.proofs import Proof, exit_code
from simulator.demo.reporting import demo_story, make_proofs, summary_document, virtual_log
from simulator.demo.screen import Screen
from simulator.demo.stage import DEVICES_MAX, DEVICES_MIN, DemoSettings, ServiceNotStarted, Stage
from simulator.demo.story import DemoOutcome, Story, agent_intervals
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.interrupts import terminations_as_interrupts
from simulator.keys import curl_line
from simulator.report_parts.demo_page import demo_page
from simulator.report_parts.values import Tone
from simulator.terminal import Console
from simulator.whole_files import write_whole

_DEFAULTS: Final = DemoSettings()
_TONES: Final = {ExitCode.GOOD: Tone.GOOD, ExitCode.INCONCLUSIVE: Tone.WARN}


@click.command("demo", short_help="The whole story in under a minute, proven, with a report.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULTS.out,
    show_default=True,
    help="Folder for labels, sheet, report and logs; what an earlier demo left there is replaced.",
)
@click.option(
    "--devices",
    type=click.IntRange(DEVICES_MIN, DEVICES_MAX),
    default=_DEFAULTS.devices,
    show_default=True,
    help="How many devices, the real agent among them.",
)
@click.option(
    "--seed", type=int, default=_DEFAULTS.seed, show_default=True, help="Of what the virtual devices measure."
)
@click.option("--keep", is_flag=True, help="Leave everything running, print addresses and keys; Ctrl-C ends it.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="FLEET_SIMULATOR_DEMO_JSON",
    help="Print the verdict as JSON; the story goes to standard error.",
)
def demo_command(*, out: Path, devices: int, seed: int, keep: bool, as_json: bool) -> int:
    """Play the whole story on this machine and prove that nothing was lost and nothing happened twice.

    A service, a product, labels that are read back, registered devices, one real device-agent process beside virtual
    devices, commands to all of them, a SIGKILL and power cuts in the middle; then everything is read back and compared.

    Exit codes: 0 every proof held, 1 one did not, 2 usage, 3 something was still on its way after a minute, so that not
    every proof could be judged, 4 data was lost or changed, 5 the service did not start.
    """
    settings = DemoSettings(out, devices, seed, keep)
    console = Console(stderr=as_json)
    try:
        with terminations_as_interrupts(), open_folder(settings.out) as folder:
            return int(_play(settings, folder, console, as_json=as_json))
    except KeyboardInterrupt:
        console.print("\n[yellow]interrupted:[/] every process of the demo is ended", highlight=False)
        return int(ExitCode.INTERRUPTED)
    except ConfigurationError as error:
        for fault in error.faults:
            click.echo(bounded(f"fleet-simulator demo: {fault}"), err=True)
        return int(ExitCode.USAGE)
    except AgentError as error:
        click.echo(bounded(f"fleet-simulator demo: {error}"), err=True)
        return int(ExitCode.UNREACHABLE if isinstance(error, ServiceNotStarted) else exit_code_of(error))


def _play(settings: DemoSettings, folder: DemoFolder, console: Console, *, as_json: bool) -> ExitCode:
    began_s = time.time()
    screen = Screen(console)
    console.print()
    with Stage(folder) as stage:
        outcome = Story(stage, screen, settings).play()
        proofs = make_proofs(outcome)
        code = exit_code(proofs)
        held = sum(proof.held for proof in proofs)
        screen.show("proofs", f"{held} of {len(proofs)} held", _TONES.get(code, Tone.BAD))
        document = _write(outcome, proofs, screen, folder, began_s)
        _print_verdict(proofs, folder, screen, code)
        if as_json:
            click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        if settings.keep:
            _keep(outcome, screen)
    return code


def _write(
    outcome: DemoOutcome, proofs: list[Proof], screen: Screen, folder: DemoFolder, began_s: float
) -> dict[str, Any]:
    duration_s = screen.elapsed_s()
    document = summary_document(outcome, proofs, began_s=began_s, duration_s=duration_s)
    write_whole(folder.proofs, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    write_whole(folder.logs / "virtual.log", virtual_log(outcome.fleet.ledgers.values()))
    report = demo_story(
        outcome, proofs, events=screen.events, marks=screen.marks, began_s=began_s, duration_s=duration_s
    )
    write_whole(folder.report, demo_page(report))
    return document


def _print_verdict(proofs: list[Proof], folder: DemoFolder, screen: Screen, code: ExitCode) -> None:
    screen.line()
    for proof in proofs:
        color, sign = ("green", "✓") if proof.held else ("yellow", "?") if proof.inconclusive else ("red", "✕")
        screen.line(f" [bold {color}]{sign}[/] {escape(proof.name)}")
        screen.line(f"     [dim]{escape(proof.expected)}; {escape(proof.found)}[/]")
        for detail in proof.details:
            screen.line(f"     [{color}]{escape(detail)}[/]")
    screen.line()
    if code is ExitCode.GOOD:
        screen.line(" [bold green]Everything held.[/] Nothing was lost, nothing happened twice.")
    elif code is ExitCode.DATA_LOST:
        screen.line(" [bold red]Data was lost or changed.[/]")
    elif code is ExitCode.INCONCLUSIVE:
        screen.line(" [bold yellow]Inconclusive.[/] Something was still on its way when the demo ended: it is neither")
        screen.line(" lost nor proven. Try again on a machine that is less busy.")
    else:
        screen.line(" [bold red]Not every proof held.[/]")
    screen.line(f" report  {escape(str(folder.report))}")
    screen.line(f" labels  {escape(str(folder.labels))}, to print: {escape(str(folder.sheet))}")
    screen.line(f" logs    {escape(str(folder.logs))}")
    screen.line()


def _keep(outcome: DemoOutcome, screen: Screen) -> None:
    """Everything runs on; print how to reach it and wait for Ctrl-C."""
    outcome.agent.start()
    for order in agent_intervals(None):
        outcome.orders.send(outcome.onboarded.devices.real, order)
    outcome.fleet.sample(on=True)
    keys, base_url, real = outcome.service.keys, outcome.service.base_url, outcome.onboarded.devices.real
    command = json.dumps({"device_id": real.device_id, "command_payload": {"command": "ping", "echo": "hello"}})
    for name, text in (
        ("service", base_url),
        ("api key", keys.api_key),
        ("secret key", keys.secret_key.reveal()),
        ("real agent", f"process {outcome.agent.pid}, device {real.device_id}, {outcome.agent.config_path}"),
        ("send", curl_line(base_url, keys, "/commands/send", command)),
        ("look", curl_line(base_url, keys, f"/devices/{real.device_id}/commands")),
    ):
        screen.line(f" [bold]{name:<11}[/] {escape(text)}")
    screen.line("\n Everything keeps running. Ctrl-C ends it.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        screen.line(" ending ...")
