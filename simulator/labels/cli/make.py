"""``fleet-simulator labels make``: a click command, no logic."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from simulator.labels.batch.formats import DEFAULT_FORMATS, FORMATS
from simulator.labels.batch.making import Batch, make_labels
from simulator.labels.cli.printing import print_options, printing_options
from simulator.labels.cli.profile import open_profile, profile_options
from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import DEFAULT_TEMPLATE, IdentifierTemplate
from simulator.labels.symbol.proving import LEVELS
from simulator.labels.terminal import CheckFailed, WrongUse, show_progress

option = partial(click.option, show_default=True, show_envvar=True)


@click.command("make")
@option("--product-id", required=True, help="Product on every label.")
@option("--count", type=int, default=1, help="How many labels.")
@option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the pictures, the sheet and the manifest; made when missing.",
)
@option(
    "--template",
    help=f"Identifier of each device, {{serial}} standing for its number.  [default: {DEFAULT_TEMPLATE}]",
)
@option("--prefix", help="Short for a template: this text and six digits.")
@option("--first-serial", type=int, default=1, help="The first number.")
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
@option("--replace", is_flag=True, help="Overwrite another batch in the folder.")
@option("--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_MAKE_JSON", is_flag=True, help="Print the result as JSON.")
def make_command(
    *,
    product_id: str,
    count: int,
    out: Path,
    template: str | None,
    prefix: str | None,
    first_serial: int,
    size_mm: float | None,
    dpi: int,
    level: str,
    formats: str,
    profile: str,
    link_host: str,
    sign_key_file: Path | None,
    replace: bool,
    as_json: bool,
    **printing: Any,
) -> None:
    """Make labels as pictures, true-size sheets and printer files, with a manifest.

    Each code is drawn, read back by every decoder on this machine (zxing-cpp; zbar when installed) and compared
    before it is written. Equal options give equal files; running an interrupted batch again completes it.
    """
    try:
        with show_progress("labels") as on_progress:
            batch = make_labels(
                product_id=product_id,
                count=count,
                out=out,
                template=_template(template, prefix),
                first_serial=first_serial,
                size_mm=size_mm,
                dpi=dpi,
                level=level,
                formats=[word.strip().lower() for word in formats.split(",") if word.strip()],
                profile=open_profile(profile, link_host, sign_key_file),
                printing=print_options(**printing),
                replace=replace,
                on_progress=on_progress,
            )
    except UnreadableLabel as problem:
        raise CheckFailed(str(problem)) from None
    except LabelError as problem:
        raise WrongUse(str(problem)) from None
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
    return {
        "folder": str(batch.folder),
        "labels": len(batch.labels),
        "first": batch.labels[0].identifier,
        "last": batch.labels[-1].identifier,
        "decoders": list(batch.decoders),
        "retaken": batch.retaken,
        "sheet": str(batch.sheet) if batch.sheet else None,
        "files": {name: [str(path) for path in paths] for name, paths in batch.files.items()},
        "estimate": batch.estimate.document(),
        "manifest_json": str(batch.manifest_json),
        "manifest_csv": str(batch.manifest_csv),
    }


def _print_summary(batch: Batch) -> None:
    first, last = batch.labels[0], batch.labels[-1]
    edge_mm = first.matrix.modules_with_quiet_zone * first.module_mm
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold green]{len(batch.labels)} labels[/] in {escape(str(batch.folder))}: "
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
    console.print(f"  manifest   {escape(str(batch.manifest_json))} and {batch.manifest_csv.name}")
