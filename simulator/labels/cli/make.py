"""``fleet-simulator labels make``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.markup import escape

from simulator.interrupts import terminations_as_interrupts
from simulator.labels.batch.formats import DEFAULT_FORMATS, FORMATS
from simulator.labels.batch.making import Batch, make_labels
from simulator.labels.cli.options import open_profile, words_of
from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import DEFAULT_TEMPLATE, PROFILES
from simulator.labels.printing.grid import PAPERS, read_grid
from simulator.labels.printing.options import PrintOptions, parse_label_mm
from simulator.labels.processes import cores
from simulator.terminal import CheckFailed, CommandLineError, Console, Interrupted, option, show_progress


@click.command("make")
@option("--product-id", help="Product on every label; with --from, on every row that names none.")
@option("--count", type=int, default=1, help="How many labels.")
@option(
    "--from",
    "devices",
    type=click.Path(path_type=Path),
    help="Instead of --count, a table of devices: CSV or YAML with device_identifier and, if wanted, product_id, name.",
)
@option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the pictures, the sheet and the manifest; made when missing.",
)
@option(
    "--template",
    default=DEFAULT_TEMPLATE,
    help="Identifier of each device: {serial} stands for its number, {check} behind it for a check character.",
)
@option("--first-serial", type=int, help="The first number.  [default: 1, or the next that --ledger has]")
@option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="File that remembers which serials are taken, so that two batches never overlap; made when missing.",
)
@option(
    "--size-mm",
    type=float,
    help="Longest edge of a code, its quiet zone counted.  [default: 25, or what the label holds]",
)
@option(
    "--dpi",
    type=int,
    default=300,
    help="Resolution of the printer; a module is a whole number of its dots.",
)
@option(
    "--formats",
    default=",".join(DEFAULT_FORMATS),
    help=f"What to write, separated by commas: {', '.join(FORMATS)}. pdf is the sheet, zpl for Zebra printers.",
)
@option("--profile", default="json", help=f"Payload: {', '.join(PROFILES)}.")
@option("--link-host", default="", help="Host of the profile link, such as onboard.example.com.")
@option(
    "--sign-key-file",
    type=click.Path(path_type=Path),
    help="Sign with the key in this file (labels keygen); a key is never given on the command line.",
)
@option("--paper", type=click.Choice(sorted(PAPERS)), default="a4", help="Paper of the sheet, when it is plain.")
@option(
    "--grid",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with the measures of a sheet whose labels are cut already.",
)
@option("--label-mm", help="Label in the Zebra printer, width x height, such as 50x25.  [default: what is needed]")
@option("--replace", is_flag=True, help="Overwrite another batch in the folder.")
@option("--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_MAKE_JSON", is_flag=True, help="Print the result as JSON.")
def make_command(
    *,
    product_id: str | None,
    count: int,
    devices: Path | None,
    out: Path,
    template: str,
    first_serial: int | None,
    ledger: Path | None,
    size_mm: float | None,
    dpi: int,
    formats: str,
    profile: str,
    link_host: str,
    sign_key_file: Path | None,
    paper: str,
    grid: Path | None,
    label_mm: str | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Make labels as pictures, a true-size sheet and files for Zebra printers, with a manifest.

    Each code is drawn, read back by zxing-cpp, and by zbar where it is installed, and compared before it is written.
    Equal options give equal files; running an interrupted batch again completes it.
    """
    try:
        with show_progress("labels") as on_progress, terminations_as_interrupts():
            batch = make_labels(
                product_id=product_id,
                count=count,
                out=out,
                template=template,
                first_serial=first_serial,
                devices=devices,
                ledger=ledger,
                size_mm=size_mm,
                dpi=dpi,
                formats=words_of(formats),
                profile=open_profile(profile, link_host, sign_key_file),
                printing=PrintOptions(
                    paper=paper,
                    grid=read_grid(grid) if grid else None,
                    label_mm=parse_label_mm(label_mm) if label_mm else None,
                ),
                replace=replace,
                jobs=cores(),
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted: the same command begins again, and completes the folder") from None
    except UnreadableLabel as problem:
        raise CheckFailed(str(problem)) from None
    except LabelError as problem:
        raise CommandLineError(str(problem)) from None
    if as_json:
        click.echo(json.dumps(_summary(batch), ensure_ascii=False))
    else:
        _print_summary(batch)


def _summary(batch: Batch) -> dict[str, object]:
    return {
        "folder": str(batch.folder),
        "labels": len(batch.labels),
        "first": batch.labels[0].identifier,
        "last": batch.labels[-1].identifier,
        "decoders": list(batch.decoders),
        "retaken": batch.retaken,
        "warnings": list(batch.warnings),
        "files": {name: str(path) for name, path in batch.files.items()},
        "manifest_json": str(batch.manifest_json),
        "manifest_csv": str(batch.manifest_csv),
    }


def _print_summary(batch: Batch) -> None:
    first, last = batch.labels[0], batch.labels[-1]
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold green]{len(batch.labels)} labels[/] in {escape(str(batch.folder))}: "
        f"{escape(first.identifier)} to {escape(last.identifier)}"
    )
    console.print(
        f"  code       {first.edge_mm:.1f} mm with its quiet zone, {first.dots_per_module} dots per module, "
        f"version {first.matrix.version}"
    )
    retaken = f", {batch.retaken} of them in a second try" if batch.retaken else ""
    console.print(f"  proven by  {', '.join(batch.decoders)}{retaken}")
    for name, path in batch.files.items():
        console.print(f"  {name:<10} {escape(str(path))}{'; print at 100 %' if name == 'pdf' else ''}")
    console.print(f"  manifest   {escape(str(batch.manifest_json))} and {batch.manifest_csv.name}")
    for warning in batch.warnings:
        console.print(f"  [yellow]note[/]       {escape(warning)}")
