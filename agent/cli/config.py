"""``device-agent config``."""

from __future__ import annotations

import click

from agent.cli.options import print_json


@click.group()
def config() -> None:
    """Look at what can be configured."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file: every key with description, default and unit.

    Editors with a YAML language server check and complete the file with it.
    """
    from agent.config.document import json_schema

    print_json(json_schema())
