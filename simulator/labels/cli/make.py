"""``fleet-simulator labels make``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from simulator.interrupts import terminations_as_interrupts
from simulator.labels.batch.formats import DEFAULT_FORMATS, FORMATS
from simulator.labels.batch.making import Batch, make_labels
from simulator.labels.cli.options import open_profile, print_options, printing_options, profile_options, words_of
from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import DEFAULT_TEMPLATE, IdentifierTemplate
from simulator.labels.processes import cores
from simulator.labels.symbol.decoders import DECODERS
from simulator.labels.symbol.encoding import LEVELS
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
@option("--skip-bad", is_flag=True, help="Make the good rows of a table that has bad ones.")
@option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the pictures, the sheet and the manifest; made when missing.",
)
@option(
    "--template",
    help="Identifier of each device: {serial} stands for its number, {check} behind it for a check character.  "
    f"[default: {DEFAULT_TEMPLATE}]",
)
@option("--prefix", help="Short for a template: this text and six digits.")
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
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="M",
    help="Lowest error correction level.",
)
@option(
    "--formats",
    default=",".join(DEFAULT_FORMATS),
    help=f"What to write, separated by commas: {', '.join(FORMATS)}. pdf is the sheet, html a contact sheet.",
)
@profile_options
@printing_options
@option(
    "--decoders",
    help=f"Who has to read every code, separated by commas: {', '.join(DECODERS)}.  [default: all that are installed]",
)
@option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one for each processor]")
@option("--replace", is_flag=True, help="Overwrite another batch in the folder.")
@option("--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_MAKE_JSON", is_flag=True, help="Print the result as JSON.")
def make_command(
    *,
    product_id: str | None,
    count: int,
    devices: Path | None,
    skip_bad: bool,
    out: Path,
    template: str | None,
    prefix: str | None,
    first_serial: int | None,
    ledger: Path | None,
    size_mm: float | None,
    dpi: int,
    level: str,
    formats: str,
    profile: str,
    link_host: str,
    sign_key_file: Path | None,
    decoders: str | None,
    jobs: int | None,
    replace: bool,
    as_json: bool,
    **printing: Any,
) -> None:
    """Make labels as pictures, true-size sheets and printer files, with a manifest.

    Each code is drawn, read back by every decoder on this machine (zxing-cpp; zbar and OpenCV when installed) and
    compared before it is written. Equal options give equal files, for any number of --jobs; running an interrupted
    batch again completes it.
    """
    try:
        with show_progress("labels") as on_progress, terminations_as_interrupts():
            batch = make_labels(
                product_id=product_id,
                count=count,
                out=out,
                template=_template(template, prefix),
                first_serial=first_serial,
                devices=devices,
                skip_bad=skip_bad,
                ledger=ledger,
                size_mm=size_mm,
                dpi=dpi,
                level=level,
                formats=words_of(formats),
                profile=open_profile(profile, link_host, sign_key_file),
                printing=print_options(**printing),
                replace=replace,
                decoders=None if decoders is None else words_of(decoders),
                jobs=cores() if jobs is None else jobs,
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted: the same command goes on where this one ended") from None
    except UnreadableLabel as problem:
        raise CheckFailed(str(problem)) from None
    except LabelError as problem:
        raise CommandLineError(str(problem)) from None
    if as_json:
        click.echo(json.dumps(_summary(batch), ensure_ascii=False))
    else:
        _print_summary(batch)


def _template(template: str | None, prefix: str | None) -> str:
    if template is not None and prefix is not None:
        raise click.UsageError("give --template or --prefix, not both")
    if prefix is not None:
        return IdentifierTemplate.after_prefix(prefix).pattern
    return DEFAULT_TEMPLATE if template is None else template


def _summary(batch: Batch) -> dict[str, object]:
    first, last = batch.first, batch.last
    return {
        "folder": str(batch.folder),
        "labels": batch.count,
        "first": first.identifier,
        "last": last.identifier,
        "resumed": batch.resumed,
        "decoders": list(batch.decoders),
        "retaken": batch.retaken,
        "warnings": list(batch.warnings),
        "sheet": str(batch.sheet) if batch.sheet else None,
        "files": {name: [str(path) for path in paths] for name, paths in batch.files.items()},
        "estimate": batch.estimate.document(),
        "manifest_json": str(batch.manifest_json),
        "manifest_csv": str(batch.manifest_csv),
    }


def _print_summary(batch: Batch) -> None:
    first, last = batch.first, batch.last
    edge_mm = first.matrix.modules_with_quiet_zone * first.module_mm
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold green]{batch.count} labels[/] in {escape(str(batch.folder))}: "
        f"{escape(first.identifier)} to {escape(last.identifier)}"
    )
    console.print(
        f"  code       {edge_mm:.1f} mm with its quiet zone, {first.dots_per_module} dots per module, "
        f"version {first.matrix.version}"
    )
    retaken = f", {batch.retaken} of them in a second try" if batch.retaken else ""
    console.print(f"  proven by  {', '.join(batch.decoders)}{retaken}")
    console.print(f"  estimate   {batch.estimate.sentence()}")
    if batch.sheet:
        console.print(f"  sheet      {escape(str(batch.sheet))}, {last.page} page(s); print at 100 %")
    for name, paths in batch.files.items():
        if name != "pdf":
            console.print(f"  {name:<10} {', '.join(escape(str(path)) for path in paths)}")
    if batch.resumed:
        console.print(f"  resumed    {batch.resumed} labels were proven before and were left alone")
    console.print(f"  manifest   {escape(str(batch.manifest_json))} and {batch.manifest_csv.name}")
    for warning in batch.warnings:
        console.print(f"  [yellow]note[/]       {escape(warning)}")
