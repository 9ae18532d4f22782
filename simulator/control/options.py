"""What the commands on a service's control surface share: where it is, and what to send there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click
from rich.table import Table

from agent.wire.secret import Secret
from simulator.terminal import Console, option
from simulator.wire.control import ControlClient

DEFAULT_URL: Final = "http://127.0.0.1:8080"

_WIDEST: Final = 100_000

_OPTIONS = (
    option("--base-url", default=DEFAULT_URL, help="Address of the service; on this machine, or with a control token."),
    option("--control-token", help="The service's control token, where it has one; it is shown at its start."),
    option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request."),
)


def takes_control(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that lead to a control surface; the command gets the open ``client``.

    An error of the service is one line on standard error, and exit code 1; 2 where it lets nobody in, 5 where it cannot
    be reached.
    """

    @functools.wraps(command)
    def wrapper(*, base_url: str, control_token: str | None, timeout_s: float, **given: Any) -> None:
        token = Secret(control_token) if control_token else None
        with ControlClient(base_url, token, timeout_s=timeout_s) as client:
            command(client=client, **given)

    return functools.reduce(lambda made, add: add(made), reversed(_OPTIONS), wrapper)


def print_table(table: Table) -> None:
    """Print it as wide as it is, so that a narrow terminal cuts nothing off."""
    Console(highlight=False, markup=False, width=_WIDEST).print(table)
