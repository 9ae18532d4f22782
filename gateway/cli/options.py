"""Shared by the gateway's commands: their options, and ways to read the configuration."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agent.cli.options import config_option_of, file_to_load
from agent.config.load import load_model

if TYPE_CHECKING:
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
