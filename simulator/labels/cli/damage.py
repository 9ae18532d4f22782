"""``fleet-simulator labels damage``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Final

import click
from rich.markup import escape
from rich.table import Table

from simulator.labels.cli.options import words_of
from simulator.labels.damage.flip import Flip, FlipOutcome
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.making import SEVERITIES, DamagedBatch, damage_labels
from simulator.labels.errors import LabelError
from simulator.labels.processes import cores
from simulator.terminal import Console, errors_in_one_line, option, show_progress

_PREFIX: Final = "FLEET_SIMULATOR_LABELS_DAMAGE"


@click.command("damage")
@click.argument("labels", nargs=-1, required=True, type=click.Path(path_type=Path))
@option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for pictures and manifests; made when missing.",
)
@option("--kinds", default="all", help=f"Separated by commas, or all: {', '.join(KINDS)}.")
@option(
    "--severities",
    default=",".join(f"{severity:g}" for severity in SEVERITIES),
    help="Separated by commas, above 0, up to 1.",
)
@option("--seed", type=int, default=1, help="Another one puts scratches, stains and noise elsewhere.")
@option(
    "--flip/--no-flip",
    default=True,
    envvar=f"{_PREFIX}_FLIP",
    help="Search for the severity where each decoder loses each label.",
)
@option("--json", "as_json", envvar=f"{_PREFIX}_JSON", is_flag=True, help="Print the result as JSON.")
def damage_command(
    *,
    labels: tuple[Path, ...],
    out: Path,
    kinds: str,
    severities: str,
    seed: int,
    flip: bool,
    as_json: bool,
) -> None:
    """Damage LABELS (PNG files of 'labels make', or folders of them) by known amounts.

    Every picture is shown to every decoder of this machine; the manifest says what each really said. Equal options
    give equal pixels. No verdict is a failure: the exit code is 0 once everything is written.
    """
    with errors_in_one_line(), show_progress("kinds of damage") as on_progress:
        batch = damage_labels(
            labels,
            out=out,
            kinds=KINDS if kinds.strip().lower() == "all" else words_of(kinds),
            severities=_numbers(severities),
            seed=seed,
            flips=flip,
            jobs=cores(),
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps(_summary(batch), ensure_ascii=False))
    else:
        _print_summary(batch)


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in words_of(text)]
    except ValueError:
        raise LabelError(f"severities: {text!r} are not numbers separated by commas; such as 0.2,0.6,1") from None


def _summary(batch: DamagedBatch) -> dict[str, object]:
    labels = dict.fromkeys(finding.label for finding in batch.findings)
    return {
        "folder": str(batch.folder),
        "labels": len(labels),
        "kinds": list(batch.run.kinds),
        "severities": list(batch.run.severities),
        "decoders": list(batch.run.decoders),
        "pictures": sum(len(finding.samples) for finding in batch.findings),
        "manifest_json": str(batch.folder / "manifest.json"),
        "flips_csv": str(batch.folder / "flips.csv"),
    }


def _print_summary(batch: DamagedBatch) -> None:
    console = Console(highlight=False, soft_wrap=True)
    summary = _summary(batch)
    console.print(
        f"[bold green]{summary['pictures']} pictures[/] of {summary['labels']} label(s) in {escape(str(batch.folder))}"
    )
    flips = {name: [one.flips for one in batch.findings if one.kind == name and one.flips] for name in batch.run.kinds}
    if any(flips.values()):
        console.print("severity from which a decoder loses a label (median); * reads some again at a worse one")
        console.print(_flip_table(batch, flips))
    console.print(f"manifest   {escape(str(batch.folder / 'manifest.json'))}, manifest.csv and flips.csv")


def _flip_table(batch: DamagedBatch, flips: dict[str, list[tuple[Flip, ...]]]) -> Table:
    table = Table("kind", *batch.run.decoders, "severity 1 is", box=None, pad_edge=False)
    for name, of_labels in flips.items():
        columns = [_flip_text(list(of_decoder)) for of_decoder in zip(*of_labels, strict=True)]
        table.add_row(name, *columns, escape(f"{KINDS[name].measure(1):g} {KINDS[name].unit}"))
    return table


def _flip_text(flips: list[Flip]) -> str:
    """The median severity of the first loss, and a word on labels that are an exception."""
    lost = [flip.first_lost for flip in flips if flip.first_lost is not None]
    kept = sum(1 for flip in flips if flip.outcome is FlipOutcome.NEVER)
    text = f"{median(lost):.2f}" if lost else "never"
    if not all(flip.monotonic for flip in flips):
        text += "*"
    return f"{text}, never {kept}" if lost and kept else text
