"""The options that lead to a target, or to the machines of a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from agent.errors import ConfigurationError
from simulator.credentials import takes_ca_file
from simulator.fleet.scenario.reading import ScenarioFile, read_scenario_file
from simulator.fleet.target.target import TargetOptions
from simulator.terminal import CommandLineError

_TARGET = (
    click.option("--base-url", help="Address of the service, such as http://127.0.0.1:8080."),
    click.option("--api-key", help="The public key, mk_..."),
    click.option(
        "--secret-key-file",
        type=click.Path(path_type=Path),
        help="File with the secret key, msk_...; never given on the command line, where other users see it.",
    ),
    takes_ca_file,
    click.option(
        "--up",
        type=click.Path(file_okay=False, path_type=Path),
        help="Instead of address and keys: the folder that 'fleet-simulator up --data' was given.",
    ),
    click.option(
        "--targets",
        type=click.Path(dir_okay=False, path_type=Path),
        help="YAML file of servers that may be loaded, with caps; this machine always may.",
    ),
    click.option(
        "--i-own-this-target", "owned", is_flag=True, help="Load a server that is neither this machine nor listed."
    ),
)


def takes_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the target; the command gets them as ``target``, ``targets`` and ``owned``."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> Any:
        names = ("base_url", "api_key", "secret_key_file", "up", "ca_file")
        return command(target=TargetOptions(**{name: given.pop(name) for name in names}), **given)

    return functools.reduce(lambda made, add: add(made), reversed(_TARGET), wrapper)


takes_cluster = click.option(
    "--cluster",
    metavar="HOST:PORT|auto",
    help="Make the load on the machines of a Ray cluster: the address of its head, or auto for the cluster that this "
    "machine belongs to. Needs the extra 'cluster'.",
)
"""Add the option of a cluster."""


def check_cluster(cluster: str | None, file: ScenarioFile, *, local: bool) -> None:
    """Return where a cluster can make the load of a scenario.

    Args:
        cluster: as :func:`takes_cluster` gives it; None for no cluster.
        file: the scenario.
        local: the service is started for this run.

    Raises:
        CommandLineError: its devices go through a gateway, or to a service that only this machine reaches.
    """
    if cluster is not None and local:
        fix = "leave out --cluster, or give --base-url of a service that the cluster's machines reach"
        raise CommandLineError(f"--local starts a service that only this machine reaches: {fix}")
    if cluster is not None and file.scenario.target.uses_gateway:
        why = (
            "its tokens are made on its own machine, and 'up' has gateway and broker at addresses of that machine alone"
        )
        raise CommandLineError(
            f"over MQTT, or through a gateway, a run has workers on one machine, since {why}: leave out --cluster, "
            "or take 'transport: http_poll' and 'through: service'"
        )


takes_python = click.option(
    "--allow-python", is_flag=True, help="Run the Python files that signals name, with all the rights that you have."
)
"""Add the option that lets a scenario be a program."""


def read_or_refuse(path: Path, *, allow_python: bool) -> ScenarioFile:
    """The scenario of a file.

    Raises:
        CommandLineError: it has faults; each on a line of its own.
    """
    try:
        return read_scenario_file(path, allow_python=allow_python)
    except ConfigurationError as error:
        raise CommandLineError("\n".join(f"{error.source}: {fault}" for fault in error.faults)) from None
