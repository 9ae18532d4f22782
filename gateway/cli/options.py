"""Shared by the gateway's commands: their options, how they end, and ways to read the configuration."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from agent.cli.program import (
    config_option_of,
    file_to_load,
    print_json,
    print_table,
)
from agent.errors import (
    EXIT_CHECK_FAILED,
    EXIT_CONFIGURATION,
    EXIT_UNREACHABLE,
    Advice,
    ConfigurationError,
    ServiceError,
)
from agent.text import bounded, unescaped
from gateway.config import PREFIX, GatewayConfig, load_gateway

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_PATH: Final = Path("/etc/device-gateway/config.yaml")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 366 * 86_400.0
_ENDS: Final = {Advice.RETRY: EXIT_UNREACHABLE, Advice.REAUTHENTICATE: EXIT_CONFIGURATION}

gateway_config_option = config_option_of(DEFAULT_PATH, "DEVICE_GATEWAY_CONFIG", "The gateway's configuration file")
"""``--config FILE``."""


def path_option(
    name: str, text: str, default: Path | None = None, *, is_folder: bool = False
) -> Callable[[Function], Function]:
    """An option for a file, or for a folder."""
    kind = click.Path(path_type=Path, file_okay=not is_folder, dir_okay=is_folder)
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text)


def read_duration(text: str) -> float:
    """A time such as ``90s``, ``15m``, ``1h`` or ``7d``, in seconds."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if found is None or not 1.0 <= float(found[1]) * _UNITS[found[2]] <= _LONGEST_S:
        raise click.BadParameter(f"{text!r} is no time: write 15m, 1h or 7d, from 1s to 366d")
    return float(found[1]) * _UNITS[found[2]]


def read_lines(file: TextIO, option: str) -> list[str]:
    """The ids of a file, one in each line; ``#`` begins a comment.

    Raises:
        ConfigurationError: there are none, or it is not text.
    """
    try:
        lines = [line.strip() for line in file]
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{file.name} is not UTF-8 text: {error}"], option) from None
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise ConfigurationError([f"{file.name} has no device id: write one in each line"], option)
    return found


def load(config_path: Path, *, with_keys: bool = False) -> GatewayConfig:
    """The configuration that a command works with; most of them need no key pair.

    Raises:
        ConfigurationError: see :func:`gateway.config.load_gateway`.
    """
    return load_gateway(file_to_load(config_path, DEFAULT_PATH, PREFIX), os.environ, with_keys=with_keys)


@contextmanager
def errors_end_it() -> Iterator[None]:
    """An error of the service ends the program with one line."""
    try:
        yield
    except ServiceError as error:
        complain(f"the service: {error}")
        raise SystemExit(_ENDS.get(error.advice, EXIT_CHECK_FAILED)) from None


def complain(text: str) -> None:
    """One line on standard error."""
    click.echo(bounded(text), err=True)


def print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Rows with the same members, as JSON or as a table."""
    if as_json:
        print_json(rows)
    elif rows:
        cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
        print_table([name.replace("_", " ") for name in rows[0]], cells)


def print_qr(text: str) -> None:
    """The QR symbol of a text, drawn for a terminal."""
    import qrcode

    symbol: Any = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M)
    symbol.add_data(text.encode())
    # Scanners dislike a light symbol on dark ground: on a terminal its own colours are set, elsewhere blocks are light.
    is_terminal = sys.stdout.isatty()
    symbol.print_ascii(out=unescaped(sys.stdout), tty=is_terminal, invert=not is_terminal)
