"""``fleet-simulator demo``: play it, print the verdict."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from simulator.demo.folder import open_folder
from simulator.demo.story import Demo, Verdict
from simulator.exit_codes import ExitCode
from simulator.interrupts import terminations_as_interrupts
from simulator.terminal import Console
from simulator.whole_files import write_whole


@click.command("demo", short_help="The whole story in under a minute, proven, with a report.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    help="Folder for report, data and logs; what an earlier demo left there is replaced.",
)
@click.option(
    "--devices", type=click.IntRange(1, 200), default=20, help="How many virtual devices, beside the real agent."
)
@click.option("--seed", type=int, default=1, help="Of what the virtual devices measure.")
def demo_command(*, out: Path, devices: int, seed: int) -> int:
    """Play the whole story on this machine and prove that nothing was lost and nothing happened twice.

    A service, a broker, a gateway, one real device-agent and a fleet of virtual devices. The agent is killed with
    SIGKILL in the middle of two commands, a third of the fleet loses its power. Then everything is read back: by the
    fleet's own audit, and for the agent by what its programs wrote down.

    Exit codes: 0 everything held, 1 something did not, 2 usage, 3 it could not be judged, 4 data was lost or changed,
    5 the service did not start.
    """
    console = Console(highlight=False, soft_wrap=True, markup=False)
    began_s = time.monotonic()

    def say(actor: str, text: str) -> None:
        console.print(f" {time.monotonic() - began_s:5.1f} s  {actor:<8} {text}")

    try:
        with terminations_as_interrupts(), open_folder(out) as root, Demo(root, say) as demo:
            verdict = demo.play(devices, seed)
            write_whole(root / "verdict.json", json.dumps(verdict.to_json(), indent=2) + "\n")
            _print(verdict, root, console)
    except KeyboardInterrupt:
        console.print("\ninterrupted: every process of the demo is ended")
        return ExitCode.INTERRUPTED
    return verdict.code


def _print(verdict: Verdict, root: Path, console: Console) -> None:
    console.print()
    for text in verdict.failures or verdict.checked:
        console.print(f" {'✕' if verdict.failures else '✓'} real agent: {text}")
    run = (root / "logs" / "run.log").read_text(errors="replace").rstrip().rpartition("\n\n")[2]
    console.print("\n".join(f"     {line}" for line in run.splitlines()))
    sign = {ExitCode.GOOD: "✓", ExitCode.INCONCLUSIVE: "?"}.get(ExitCode(verdict.fleet), "✕")
    console.print(f" {sign} fleet: fleet-simulator run ended with exit code {verdict.fleet}")
    sentences = {
        ExitCode.GOOD: "Everything held. Nothing was lost, nothing happened twice.",
        ExitCode.INCONCLUSIVE: "Inconclusive: it could not be judged. Try again on a machine that is less busy.",
        ExitCode.DATA_LOST: "Data was lost or changed.",
    }
    console.print(f"\n {sentences.get(verdict.code, 'Not everything held.')}")
    console.print(f" report  {verdict.report}\n data    {root}\n")
