"""``fleet-simulator labels show`` and ``labels style``: click commands, no logic."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.error_text import bounded
from simulator.labels.cli.options import open_profile, profile_options, words_of
from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import Payload
from simulator.labels.symbol.decoders import DECODERS, lone_decoder_warning, panel
from simulator.labels.symbol.encoding import LEVELS
from simulator.labels.symbol.styled import SHAPES, ProvenDrawing, Style, prove_styled, prove_terminal
from simulator.terminal import CheckFailed, CommandLineError, option
from simulator.whole_files import cannot_write, write_whole

Command = TypeVar("Command", bound=Callable[..., Any])

_TEXT_OPTIONS: Final = (
    click.argument("text", required=False),
    option("--product-id", help="Instead of TEXT: product of a device label."),
    option("--identifier", help="Instead of TEXT: device_identifier of a device label."),
    option(
        "--level", type=click.Choice(LEVELS, case_sensitive=False), default="M", help="Lowest error correction level."
    ),
    option(
        "--decoders",
        help=f"Who has to read the code, separated by commas: {', '.join(DECODERS)}.  [default: all installed]",
    ),
)


def _text_options(command: Command) -> Command:
    return reduce(lambda decorated, add: add(decorated), reversed(_TEXT_OPTIONS), profile_options(command))


@click.command("show")
@_text_options
@option("--invert", is_flag=True, help="For a terminal with dark letters on a light ground.")
def show_command(
    *,
    text: str | None,
    product_id: str | None,
    identifier: str | None,
    profile: str,
    link_host: str,
    sign_key_file: Path | None,
    level: str,
    decoders: str | None,
    invert: bool,
) -> None:
    """Draw one code in the terminal: TEXT, or the label of a device. The drawing is proven to read."""
    payload = partial(open_profile, profile, link_host, sign_key_file)
    drawing = _prove(
        lambda: prove_terminal(
            _text(text, product_id, identifier, payload),
            invert=invert,
            level=level,
            panel=panel(_names(decoders)),
        )
    )
    click.echo(drawing.data.decode(), nl=False)
    _warn(drawing)


@click.command("style")
@_text_options
@option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="PNG file to write.")
@option("--shape", type=click.Choice(list(SHAPES)), default="square", help="Shape of the modules.")
@option("--dark", default="#000000", help="Colour of the modules.")
@option("--light", default="#ffffff", help="Colour of the ground.")
@option("--logo", type=click.Path(path_type=Path), help="Picture for the middle; the code then has level H.")
@option("--logo-share", type=float, default=0.2, help="Edge of the logo as a part of the code's.")
@option("--dots", type=int, default=10, help="Pixels along a module.")
@option("--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_STYLE_JSON", is_flag=True, help="Print the result as JSON.")
def style_command(
    *,
    text: str | None,
    product_id: str | None,
    identifier: str | None,
    profile: str,
    link_host: str,
    sign_key_file: Path | None,
    level: str,
    decoders: str | None,
    out: Path,
    shape: str,
    dark: str,
    light: str,
    logo: Path | None,
    logo_share: float,
    dots: int,
    as_json: bool,
) -> None:
    """Draw one code with colours, shapes and a logo: TEXT, or the label of a device.

    The drawing is read back in grey and in colour; one that is not read by all is not written.
    """
    style: list[Style] = []
    payload = partial(open_profile, profile, link_host, sign_key_file)

    def prove() -> ProvenDrawing:
        style.append(Style(shape, dark, light, logo, logo_share, dots))
        return prove_styled(
            _text(text, product_id, identifier, payload),
            style=style[0],
            level=level,
            panel=panel(_names(decoders)),
        )

    drawing = _prove(prove)
    try:
        write_whole(out, drawing.data)
    except OSError as problem:
        raise CommandLineError(cannot_write(out, problem, "another --out")) from None
    verdicts = {name: verdict.value for name, verdict in drawing.taken.verdicts}
    if as_json:
        document = {"file": str(out), "text": drawing.text, "candidate": drawing.taken.number, "verdicts": verdicts}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    tries = f", candidate {drawing.taken.number}" if drawing.missed else ""
    click.echo(f"{out}: version {drawing.matrix.version}, proven by {', '.join(verdicts)}{tries}")
    if style[0].red_light_contrast < 0.4:
        click.echo("note: a scanner that lights with red does not see these colours; phones do", err=True)
    _warn(drawing)


def _prove(prove: Callable[[], ProvenDrawing]) -> ProvenDrawing:
    try:
        return prove()
    except UnreadableLabel as problem:
        raise CheckFailed(str(problem)) from None
    except LabelError as problem:
        raise CommandLineError(str(problem)) from None


def _warn(drawing: ProvenDrawing) -> None:
    warning = lone_decoder_warning([name for name, _ in drawing.taken.verdicts if " " not in name])
    if warning:
        click.echo(bounded(f"note: {warning}"), err=True)


def _names(decoders: str | None) -> list[str] | None:
    return None if decoders is None else words_of(decoders)


def _text(text: str | None, product_id: str | None, identifier: str | None, payload: Callable[[], Payload]) -> str:
    if text and not product_id and not identifier:
        return text
    if text or not product_id or not identifier:
        raise click.UsageError("give TEXT, or both --product-id and --identifier")
    return payload().text(product_id, identifier)
