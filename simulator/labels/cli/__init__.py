"""``fleet-simulator labels``: one module for each command, no logic in them."""

from __future__ import annotations

import click

from simulator.labels.cli.corpus import corpus_command
from simulator.labels.cli.damage import damage_command
from simulator.labels.cli.keys import keygen_command
from simulator.labels.cli.make import make_command
from simulator.labels.cli.verify import verify_command

__all__ = ["labels_command"]


# The prefix is what the program gives it anyway; said here, it also holds when the group is used on its own.
@click.group("labels", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_LABELS"})
def labels_command() -> None:
    """QR labels: make them, each proven to read; damage them by known amounts; verify them in pictures."""


labels_command.add_command(make_command)
labels_command.add_command(keygen_command)
labels_command.add_command(damage_command)
labels_command.add_command(verify_command)
labels_command.add_command(corpus_command)
