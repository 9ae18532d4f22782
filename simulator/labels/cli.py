"""``fleet-simulator labels``: options and what is printed, no logic."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.markup import escape
from rich.table import Table

from simulator.exit_codes import ExitCode
from simulator.interrupts import terminations_as_interrupts
from simulator.labels.corpus import UNKNOWN_PRODUCT, Setting, made_up_signer, write_corpus
from simulator.labels.damage import KINDS, STRENGTHS, damage_labels
from simulator.labels.identifiers import DEFAULT_TEMPLATE
from simulator.labels.make import DEFAULT_FORMATS, FORMATS, Batch, make_labels
from simulator.labels.manifest import as_csv
from simulator.labels.payload import open_payload
from simulator.labels.verify import Report, State, verify_labels
from simulator.terminal import CommandLineError, Console, show_progress
from simulator.whole_files import cannot_write, write_whole
from simulator.wire.qr import keys

_COLOURS: Final = {
    State.READ: "green",
    State.DOUBLE: "yellow",
    State.FOREIGN: "red",
    State.UNREAD: "magenta",
    State.MISSING: "red",
}
_ROWS_MAX: Final = 200
_FILE: Final = click.Path(path_type=Path)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_out_option = click.option("--out", type=_FILE, required=True, help="Folder for what is made; made when missing.")
_sign_key_option = click.option("--sign-key-file", type=_FILE, help="Sign with the key in this file (labels keygen).")


# The prefix is what the program gives it anyway; said here, it also holds when the group is used on its own.
@click.group("labels")
def labels_command() -> None:
    """QR labels: make them, each read back; find them in pictures; damage them; payloads that must be refused."""


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]


@labels_command.command("make")
@click.option("--product-id", help="Product on every label; with --from, on every row that names none.")
@click.option("--count", type=int, default=1, help="How many labels.")
@click.option(
    "--from",
    "devices",
    type=_FILE,
    help="Instead of --count, a table: CSV with device_identifier and, if wanted, product_id and name.",
)
@_out_option
@click.option(
    "--template",
    default=DEFAULT_TEMPLATE,
    help="Identifier of each device: {serial} stands for its number, {check} behind it for a check character.",
)
@click.option("--first-serial", type=int, help="The first number.  [default: 1, or the next that --ledger has]")
@click.option(
    "--ledger",
    type=_FILE,
    help="File that remembers which serials are taken, so that two batches never overlap; made when missing.",
)
@click.option(
    "--size-mm", type=float, help="Longest edge of a code with its margin.  [default: 25, or what a label holds]"
)
@click.option("--dpi", type=int, default=300, help="Resolution of the printer; a module is a whole number of its dots.")
@click.option(
    "--formats",
    default=",".join(DEFAULT_FORMATS),
    help=f"What to write, separated by commas: {', '.join(FORMATS)}. pdf is the sheet, zpl for Zebra printers.",
)
@click.option(
    "--sheet",
    default="a4",
    help="a4 or letter; the size of a label printer's labels in mm, such as 50x25; or a YAML file (docs/labels.md).",
)
@click.option("--profile", default="json", help="Form of the text: json, compact, or link:HOST.")
@_sign_key_option
@_json_option
def make_command(*, profile: str, sign_key_file: Path | None, formats: str, as_json: bool, **options: Any) -> ExitCode:
    """Make labels as pictures, a true-size sheet and a file for Zebra printers, with a manifest.

    zxing-cpp reads each code back before it is written. Equal options give equal files; running an interrupted batch
    again completes it.
    """
    jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with show_progress("labels") as on_progress, terminations_as_interrupts():
            payload = open_payload(profile, sign_key_file)
            batch = make_labels(**options, payload=payload, formats=_words(formats), jobs=jobs, on_progress=on_progress)
    except KeyboardInterrupt:
        click.echo("interrupted: the same command begins again, and completes the folder", err=True)
        return ExitCode.INTERRUPTED
    if as_json:
        click.echo(json.dumps(_made(batch), ensure_ascii=False))
    else:
        _print_batch(batch)
    return ExitCode.GOOD


def _made(batch: Batch) -> dict[str, Any]:
    return {
        "folder": str(batch.folder),
        "labels": len(batch.labels),
        "first": batch.labels[0].order.identifier,
        "last": batch.labels[-1].order.identifier,
        "notes": list(batch.notes),
        "files": {name: str(path) for name, path in batch.files.items()},
        "manifest": str(batch.folder / "manifest.json"),
    }


def _print_batch(batch: Batch) -> None:
    first, last = batch.labels[0], batch.labels[-1]
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold green]{len(batch.labels)} labels[/] in {escape(str(batch.folder))}: "
        f"{escape(first.order.identifier)} to {escape(last.order.identifier)}, each read back by zxing-cpp"
    )
    code = first.symbol
    console.print(
        f"  code       {code.edge_mm:.1f} mm with its margin, {code.dots_per_module} dots per module, version "
        f"{code.version}"
    )
    for name, path in batch.files.items():
        console.print(f"  {name:<10} {escape(str(path))}{'; print at 100 %' if name == 'pdf' else ''}")
    console.print(f"  manifest   {escape(str(batch.folder))}/manifest.json and manifest.csv")
    for note in batch.notes:
        console.print(f"  [yellow]note[/]       {escape(note)}")


@labels_command.command("keygen")
@click.option(
    "--out", type=_FILE, required=True, help="File for the private key; made with mode 600, never overwritten."
)
@click.option(
    "--kind",
    type=click.Choice(keys.KINDS),
    default=keys.ED25519,
    help="ed25519: the service gets a public key. hmac-sha256: smaller labels, and the service gets the secret.",
)
@_json_option
def keygen_command(*, out: Path, kind: str, as_json: bool) -> None:
    """Make a key that signs labels, and say what goes into the product's label_key.

    A secret is not printed: the label_key of an hmac-sha256 key is the content of the file.
    """
    signer = keys.LabelSigner.make(kind)
    try:
        signer.write(out)
    except FileExistsError:
        raise CommandLineError(f"{out} exists and is left alone: give another --out") from None
    except OSError as problem:
        raise CommandLineError(cannot_write(out, problem, "another --out")) from None
    public = signer.key.shown if kind == keys.ED25519 else None
    if as_json:
        click.echo(json.dumps({"key_file": str(out), "kind": kind, "shown_as": signer.key.shown, "label_key": public}))
        return
    click.echo(f"key file   {out}, for labels make --sign-key-file; keep it secret")
    click.echo(f"label_key  {public or f'the one line in {out}, a secret as well; shown as {signer.key.shown}'}")


@labels_command.command("verify")
@click.argument("pictures", nargs=-1, required=True, type=_FILE)
@click.option("--manifest", type=_FILE, help="Which labels should be there: manifest.json or .csv.")
@click.option("--csv", "table", type=_FILE, help="File for the table as CSV.")
@click.option("--overlap", is_flag=True, help="Pictures may show a label again; double is a second one in one picture.")
@click.option("--dpi", type=int, default=300, help="Resolution at which a PDF is drawn.")
@_json_option
def verify_command(
    *, pictures: tuple[Path, ...], manifest: Path | None, table: Path | None, overlap: bool, dpi: int, as_json: bool
) -> None:
    """Say which labels PICTURES show: photographs, scans (TIFF with pages too), PDF documents, folders of pictures.

    Against a manifest of 'labels make' it names what is missing, double or foreign. Exit code 0: every label is there
    once and nothing else; 1: something is missing, double, foreign or unread, or a file could not be read.
    """
    with show_progress("files") as on_progress:
        report = verify_labels(pictures, manifest=manifest, overlap=overlap, dpi=dpi, on_progress=on_progress)
    rows = [asdict(line) for line in report.lines]
    if table is not None and rows:
        try:
            write_whole(table, as_csv(rows))
        except OSError as problem:
            raise CommandLineError(cannot_write(table, problem, "another --csv")) from None
    if as_json:
        counts = {state.value: report.count(state) for state in State}
        document = {"good": report.good, "expected": report.expected, "pages": report.pages, "counts": counts}
        click.echo(json.dumps({**document, "problems": report.problems, "labels": rows}, ensure_ascii=False))
    else:
        _print_report(report)
    if not report.good:
        click.get_current_context().exit(ExitCode.CHECK_FAILED)


def _print_report(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("state", "identifier", "picture", "place", "note", box=None, pad_edge=False)
    for line in sorted(report.lines, key=lambda line: line.state is State.READ)[:_ROWS_MAX]:
        cells = (line.identifier, line.picture, line.place, line.note)
        table.add_row(f"[{_COLOURS[line.state]}]{line.state}[/]", *map(escape, cells))
    if report.lines:
        console.print(table)
    if len(report.lines) > _ROWS_MAX:
        console.print(f"... and {len(report.lines) - _ROWS_MAX} more: --json or --csv has them all")
    for problem in report.problems:
        console.print(f"[red]unreadable[/] {escape(problem)}")
    counts = ", ".join(f"{report.count(state)} {state}" for state in State if report.count(state)) or "no code found"
    wanted = "" if report.expected is None else f" of {report.expected} expected"
    console.print(f"[bold {'green' if report.good else 'red'}]{counts}[/]{wanted}, on {report.pages} page(s)")


@labels_command.command("damage")
@click.argument("pictures", nargs=-1, required=True, type=_FILE)
@_out_option
@click.option("--kinds", default=",".join(KINDS), help="Separated by commas.")
@click.option("--seed", type=int, default=0, help="Another one puts scratches, stains and noise elsewhere.")
@_json_option
def damage_command(*, pictures: tuple[Path, ...], out: Path, kinds: str, seed: int, as_json: bool) -> None:
    """Damage PICTURES of labels by ten kinds in five strengths, and store what zxing-cpp says of each result.

    No verdict is a failure: the exit code is 0 once everything is written. Equal seeds give equal damage.
    """
    with show_progress("pictures") as on_progress:
        made = damage_labels(pictures, out, kinds=_words(kinds), seed=seed, on_progress=on_progress)
    if as_json:
        click.echo(json.dumps({"folder": str(out), "labels": [asdict(one) for one in made]}))
        return
    read = Counter((one.kind, one.strength) for one in made if one.zxing == "read")
    all_of = Counter((one.kind, one.strength) for one in made)
    table = Table("read by zxing-cpp", *map(str, STRENGTHS), box=None, pad_edge=False)
    for kind in dict.fromkeys(one.kind for one in made):
        table.add_row(kind, *(f"{read[kind, strength]}/{all_of[kind, strength]}" for strength in STRENGTHS))
    console = Console(highlight=False)
    console.print(table)
    console.print(escape(f"{len(made)} pictures and damage.json in {out}"))


@labels_command.command("corpus")
@_out_option
@click.option("--product-id", default=UNKNOWN_PRODUCT, help="A product without label_key.")
@click.option("--signed-product-id", default="0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e22", help="A product with label_key.")
@click.option("--sign-key-file", type=_FILE, help="The latter's key.  [default: one that everybody can make]")
@click.option("--link-host", default="onboard.example.com", help="Host of good links.")
@_json_option
def corpus_command(
    *, out: Path, product_id: str, signed_product_id: str, sign_key_file: Path | None, link_host: str, as_json: bool
) -> None:
    """Payloads that a server must refuse, and neighbours that it must take, as pictures to scan, with corpus.json.

    'onboard cases' sends them to a server.
    """
    signer = keys.read_label_signer(sign_key_file) if sign_key_file else made_up_signer()
    pictures = write_corpus(out, Setting(product_id, signed_product_id, signer, link_host))
    summary = {"folder": str(out), "pictures": pictures, "label_key": signer.key.shown}
    click.echo(json.dumps(summary) if as_json else f"{pictures} pictures and corpus.json in {out}")
