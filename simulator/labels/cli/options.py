"""Options that several label commands share: how a label is written, signed and printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from agent.errors import ConfigurationError
from simulator.labels.errors import LabelError
from simulator.labels.payload import PROFILES, Payload, open_payload
from simulator.labels.printing.brother import TAPES
from simulator.labels.printing.estimate import PrintAssumptions
from simulator.labels.printing.grid import PAPERS, GridPlacement, read_grid
from simulator.labels.printing.options import PrintOptions, parse_label_mm
from simulator.labels.printing.sheet import Marks
from simulator.terminal import option
from simulator.wire.qr.keys import read_label_signer

Command = TypeVar("Command", bound=Callable[..., Any])


def profile_options(command: Command) -> Command:
    """``--profile``, ``--link-host`` and ``--sign-key-file``, to be given to :func:`open_profile`."""
    for decorate in reversed(
        (
            option(
                "--profile", default="json", help=f"Payload: {', '.join(PROFILES)}, or one of an installed package."
            ),
            option("--link-host", default="", help="Host of the profile link, such as onboard.example.com."),
            option(
                "--sign-key-file",
                type=click.Path(path_type=Path),
                help="Sign with the key in this file (labels keygen); a key is never given on the command line.",
            ),
        )
    ):
        command = decorate(command)
    return command


def open_profile(profile: str, link_host: str, sign_key_file: Path | None) -> Payload:
    """The profile that the options ask for.

    Raises:
        LabelError: there is none, or the key cannot be read.
    """
    try:
        signer = read_label_signer(sign_key_file) if sign_key_file else None
    except ConfigurationError as problem:
        raise LabelError(problem.in_one_line) from None
    return open_payload(profile, host=link_host, signer=signer)


_OPTIONS: Final = (
    option("--paper", type=click.Choice(sorted(PAPERS)), default="a4", help="Paper of the sheet, when it is plain."),
    option("--stock", help="Sheet of labels by its Avery code, such as L7160 or 5160."),
    option(
        "--grid",
        type=click.Path(path_type=Path, dir_okay=False),
        help="YAML file with the measures of any other sheet.",
    ),
    option("--offset-x-mm", type=float, default=0.0, help="Move everything on the sheet to the right."),
    option("--offset-y-mm", type=float, default=0.0, help="Move everything on the sheet down."),
    option("--skip-cells", type=int, default=0, help="Places of the first sheet that are used up, row by row."),
    option(
        "--marks",
        type=click.Choice([mark.value for mark in Marks]),
        default=Marks.AUTO.value,
        help="Lines on the sheet: where to cut, or each label's outline; auto: cut marks on plain paper.",
    ),
    option(
        "--text",
        default="identifier,product_id",
        help="Text on a label: identifier, product_id, name (of a table), serial, separated by commas; or none.",
    ),
    option("--label-mm", help="Label in the Zebra printer, width x height, such as 50x25.  [default: what is needed]"),
    option("--quantity", type=int, default=1, help="How often the Zebra printer prints each label."),
    option(
        "--tape-mm",
        type=int,
        default=62,
        help=f"Continuous tape in the Brother printer: {', '.join(map(str, TAPES))}.",
    ),
    option(
        "--print-growth-um",
        type=float,
        help="For the estimate: what a dark bar grows by in print, in micrometres.  [default: 3/4 of a dot]",
    ),
    option("--contrast", type=float, default=0.75, help="For the estimate: reflectance of label minus print, 0 to 1."),
)


def printing_options(command: Command) -> Command:
    """Add the options to a command; they come as keywords, for :func:`print_options`."""
    return reduce(lambda decorated, add: add(decorated), reversed(_OPTIONS), command)


def print_options(
    *,
    paper: str,
    stock: str | None,
    grid: Path | None,
    offset_x_mm: float,
    offset_y_mm: float,
    skip_cells: int,
    marks: str,
    text: str,
    label_mm: str | None,
    quantity: int,
    tape_mm: int,
    print_growth_um: float | None,
    contrast: float,
) -> PrintOptions:
    """The options as a value.

    Raises:
        LabelError: one of them is wrong.
    """
    words = tuple(word for word in map(str.strip, text.split(",")) if word)
    return PrintOptions(
        paper=paper,
        stock=stock,
        grid=read_grid(grid) if grid else None,
        placing=GridPlacement(offset_x_mm, offset_y_mm, skip_cells),
        marks=Marks(marks),
        text=() if words == ("none",) else words,
        label_mm=parse_label_mm(label_mm) if label_mm else None,
        quantity=quantity,
        tape_mm=tape_mm,
        assumed=PrintAssumptions(print_growth_um, contrast),
    )


def words_of(text: str) -> list[str]:
    """The words of an option whose words are separated by commas, in lower case."""
    return [word.strip().lower() for word in text.split(",") if word.strip()]
