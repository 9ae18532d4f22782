"""``device-agent plugins`` and ``update``: what changes the installation of the Debian package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import click

from agent.app.status import read_running
from agent.cli.options import (
    config_option,
    is_root,
    json_option,
    load,
    print_json,
    print_table,
)
from agent.errors import ConfigurationError
from agent.exit_codes import EXIT_CHECK_FAILED
from agent.handlers.registry import GROUP as HANDLERS
from agent.sensors.registry import GROUP as SENSORS
from agent.update.state import Places


@click.group()
def plugins() -> None:
    """Install, remove and list handlers and sensors of the Debian package.

    They are wheels; no package index is asked. With another installation use the pip of its environment.
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
    """List what is installed, with the version that the running agent has loaded."""
    folder = _folder_module()
    found = folder.installed(folder.plugin_folder())
    running = read_running(load(config_path).config, os.environ)
    rows = []
    for name, each in sorted(found.items()):
        points = sorted(point.name for point in each.entry_points if point.group in {HANDLERS, SENSORS})
        loaded = "" if running is None else running.packages.get(each.name, "")
        rows.append((name, each.version, loaded, ", ".join(points)))
    if as_json:
        keys = ("name", "installed", "loaded", "brings")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table(("NAME", "INSTALLED", "LOADED BY THE AGENT", "BRINGS"), rows)
    else:
        click.echo("nothing is installed")


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
    if not is_root():
        click.echo("only root may install a release: run it with sudo", err=True)
        raise SystemExit(EXIT_CHECK_FAILED)
    sys.stderr.flush()
    # The installer is always the package's own: no release installs, or judges, another one.
    os.execv(installer, [str(installer), "install", "--", str(path.resolve())])  # noqa: S606 - no shell
