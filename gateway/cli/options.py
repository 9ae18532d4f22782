"""Shared by the gateway's commands: their options, and ways to read the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from agent.config.load import load_model

if TYPE_CHECKING:
    from gateway.config import GatewayConfig, LoadedGateway

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_PATH: Final = Path("/etc/device-gateway/config.yaml")


def gateway_config_option(command: Function) -> Function:
    """``--config FILE``."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default=DEFAULT_PATH,
        show_default=True,
        envvar="DEVICE_GATEWAY_CONFIG",
        show_envvar=True,
        help="The gateway's configuration file. Without the default file the environment alone may hold everything.",
    )(command)


def load(config_path: Path) -> LoadedGateway:
    """The configuration that a command works with.

    Raises:
        ConfigurationError: every fault of it, and of the key files.
    """
    from gateway.config import load_gateway

    return load_gateway(_file(config_path), os.environ)


def load_without_keys(config_path: Path) -> GatewayConfig:
    """The configuration for a command that needs no key pair, so that it runs where the key files cannot be read.

    Raises:
        ConfigurationError: every fault of it.
    """
    return load_whole_without_keys(config_path).config


def load_whole_without_keys(config_path: Path) -> LoadedGateway:
    """As :func:`load_without_keys`, with the place that it came from.

    Raises:
        ConfigurationError: every fault of it.
    """
    from gateway.config import PREFIX, GatewayConfig, LoadedGateway

    path = _file(config_path)
    config, _ = load_model(GatewayConfig, path, os.environ, PREFIX, lambda _values, _environ: [])
    return LoadedGateway(config, path)


def _file(config_path: Path) -> Path | None:
    is_default = config_path == DEFAULT_PATH and not config_path.exists()
    return None if is_default and "DEVICE_GATEWAY_SERVICE__BASE_URL" in os.environ else config_path
