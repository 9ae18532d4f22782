"""Shared by the gateway's commands: their options, and ways to read the configuration."""

from __future__ import annotations

import os
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agent.adapters.files import replace_file
from agent.cli.options import config_option_of, file_to_load
from agent.config.load import load_model
from agent.process.identity import as_owner_of
from agent.terminal import unescaped

if TYPE_CHECKING:
    from qrcode import QRCode

    from gateway.config import GatewayConfig, LoadedGateway

DEFAULT_PATH: Final = Path("/etc/device-gateway/config.yaml")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 366 * 86_400.0


gateway_config_option = config_option_of(DEFAULT_PATH, "DEVICE_GATEWAY_CONFIG", "The gateway's configuration file")
"""``--config FILE``."""


def read_duration(text: str) -> float:
    """A time such as ``90s``, ``15m``, ``1h`` or ``7d``, in seconds."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if found is None or not 1.0 <= float(found[1]) * _UNITS[found[2]] <= _LONGEST_S:
        raise click.BadParameter(f"{text!r} is no time: write 15m, 1h or 7d, from 1s to 366d")
    return float(found[1]) * _UNITS[found[2]]


def load(config_path: Path) -> LoadedGateway:
    """The configuration that a command works with.

    Raises:
        ConfigurationError: every fault of it, and of the key files.
    """
    from gateway.config import PREFIX, load_gateway

    return load_gateway(file_to_load(config_path, DEFAULT_PATH, PREFIX), os.environ)


def load_without_keys(config_path: Path) -> GatewayConfig:
    """The configuration for a command that needs no key pair, so that it runs where the key files cannot be read.

    Raises:
        ConfigurationError: every fault of it.
    """
    from gateway.config import PREFIX, GatewayConfig

    path = file_to_load(config_path, DEFAULT_PATH, PREFIX)
    return load_model(GatewayConfig, path, os.environ, PREFIX, lambda _values, _environ: [])[0]


def print_qr(text: str) -> None:
    """The QR symbol of a text, drawn for a terminal."""
    symbol = _symbol(text)
    out = unescaped(sys.stdout)
    is_terminal = sys.stdout.isatty()
    # Scanners dislike a light symbol on dark ground: on a terminal its own colours are set, elsewhere blocks are light.
    symbol.print_ascii(out=out, tty=is_terminal, invert=not is_terminal)


def write_qr(path: Path, text: str) -> None:
    """The QR symbol of a text as a PNG file, mode 600.

    Raises:
        OSError: it cannot be written.
    """
    rows = _symbol(text).get_matrix()
    # A 1-bit grey PNG: a module is 8 pixels wide, so that a line is whole bytes; each begins with filter type 0.
    lines = (b"\0" + bytes(0 if module else 255 for module in row) for row in rows)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", 8 * len(rows[0]), 8 * len(rows), 1, 0, 0, 0, 0),
        b"IDAT": zlib.compress(b"".join(line * 8 for line in lines)),
        b"IEND": b"",
    }
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
    as_owner_of(path, lambda: replace_file(path, picture, 0o600))


def _symbol(text: str) -> QRCode[Any]:
    import qrcode

    symbol: QRCode[Any] = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M)
    symbol.add_data(text.encode())
    symbol.make(fit=True)
    return symbol
