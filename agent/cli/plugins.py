"""``device-agent plugins`` and ``update``: handlers and sensors, and what changes the Debian package's installation."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import click

from agent.app.plugins import is_usable, try_handlers, try_sensors
from agent.app.status import read_running
from agent.cli.check import log_nothing_but_loading
from agent.cli.program import (
    config_option,
    json_option,
    load,
    print_json,
    print_table,
)
from agent.errors import EXIT_CHECK_FAILED, ConfigurationError
from agent.sensors.registry import SensorRegistry
from agent.update.trial import Places


@click.group()
def plugins() -> None:
    """List handlers and sensors; install and remove them.

    To install and remove them is for the Debian package: they are wheels, and no package index is asked. With another
    installation use the pip of its environment.
    """


@plugins.command("install")
@click.argument("wheels", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def install_command(wheels: tuple[Path, ...]) -> None:
    """Install WHEELS in place of other versions of them.

    Give each wheel that is needed and does not come with the agent. What is missing, or does not go with the libraries
    of the agent, is named, and nothing is changed.
    """
    folder = _folder_module()
    for sentence in folder.install(folder.plugin_folder(), wheels):
        click.echo(sentence)
    click.echo("the agent loads it at its next start: systemctl restart device-agent")


@plugins.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove the package NAME."""
    folder = _folder_module()
    click.echo(folder.remove(folder.plugin_folder(), name))
    click.echo("the agent runs without it from its next start on: systemctl restart device-agent")


@plugins.command("list")
@config_option
@json_option
def list_command(config_path: Path, *, as_json: bool) -> None:
    """List handlers and configured sensors with their states, each sensor read once.

    Beside a running agent its own word on them counts. Exit code 1 when one cannot be used.
    """
    log_nothing_but_loading()
    config = load(config_path).config
    running = read_running(config, os.environ)
    found = [*try_handlers(config, running), *try_sensors(config, running)]
    types = SensorRegistry().origins()
    if as_json:
        print_json({"plugins": [asdict(each) for each in found], "sensor_types": dict(types)})
    else:
        rows = [
            (each.kind, each.name, each.status, each.type, each.contract, each.origin, each.reason or each.description)
            for each in found
        ]
        print_table(("KIND", "NAME", "STATE", "TYPE", "CONTRACT", "FROM", "WHAT"), rows)
        click.echo(f"\nTypes of sensors that can be configured: {', '.join(types)}")
    raise SystemExit(0 if all(map(is_usable, found)) else EXIT_CHECK_FAILED)


def _folder_module() -> ModuleType:
    try:
        from agent.app import plugin_folder  # needs packaging, which comes with the Debian package
    except ImportError as error:
        raise ConfigurationError([f"{error}: only the Debian package has this command"], "plugins") from None
    return plugin_folder


@click.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="The release, as tools/build_release.py wrote it.",
)
def update(path: Path) -> None:
    """Install a signed release beside the running one; keep it only if it proves itself.

    The release is checked (signature, content, version, architecture), unpacked and started. It is kept when the
    service is ready, has had an exchange with the server, stays well for the probation, and each handler and sensor
    that worked before works. Else the version before runs again by itself. Run it as root; the agent must have been
    installed by the Debian package (docs/install.md).

    Exit codes: 0 on trial or already installed, 1 refused, 2 usage.
    """
    installer = Places().installer
    if not installer.exists():
        click.echo(
            "this agent was not installed by the Debian package: update it by pip (docs/operations.md, Upgrade and "
            "downgrade), or install the package (docs/install.md)",
            err=True,
        )
        raise SystemExit(EXIT_CHECK_FAILED)
    if os.geteuid() != 0:
        click.echo("only root may install a release: run it with sudo", err=True)
        raise SystemExit(EXIT_CHECK_FAILED)
    sys.stderr.flush()
    # The installer is always the package's own: no release installs, or judges, another one.
    os.execv(installer, [str(installer), "install", "--", str(path.resolve())])  # noqa: S606 - no shell
