"""``device-agent plugins`` and ``update``: what changes the installation of the Debian package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.app.status import read_running
from agent.cli.options import (
    config_option,
    configuration_faults_end_it,
    is_root,
    json_option,
    load,
    print_json,
    print_table,
)
from agent.error_text import bounded
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_CONFIGURATION
from agent.handlers.registry import GROUP as HANDLERS
from agent.sensors.registry import GROUP as SENSORS
from agent.update.state import Places

_RESTART = "the agent loads it at its next start: systemctl restart device-agent"


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
    with _folder_faults_end_it():
        from agent.app.plugin_folder import install, plugin_folder

        sentences = install(plugin_folder(), wheels)
    for sentence in sentences:
        click.echo(sentence)
    click.echo(_RESTART)


@plugins.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove the package NAME."""
    with _folder_faults_end_it():
        from agent.app.plugin_folder import plugin_folder, remove

        sentence = remove(plugin_folder(), name)
    click.echo(sentence)
    click.echo("the agent runs without it from its next start on: systemctl restart device-agent")


@plugins.command("list")
@config_option
@json_option
def list_command(config_path: Path, *, as_json: bool) -> None:
    """List what is installed, with the version that the running agent has loaded."""
    from agent.app.plugin_folder import installed, plugin_folder

    with configuration_faults_end_it():
        found = installed(plugin_folder())
        running = read_running(load(config_path).config, os.environ)
    loaded = {} if running is None else running.packages
    rows = []
    for name, each in sorted(found.items()):
        points = sorted(point.name for point in each.entry_points if point.group in {HANDLERS, SENSORS})
        rows.append((name, each.version, loaded.get(each.name, ""), ", ".join(points)))
    if as_json:
        keys = ("name", "installed", "loaded", "brings")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table(("NAME", "INSTALLED", "LOADED BY THE AGENT", "BRINGS"), rows)
    else:
        click.echo("nothing is installed")


@contextmanager
def _folder_faults_end_it() -> Iterator[None]:
    try:
        with configuration_faults_end_it():
            yield
    except ImportError as error:
        click.echo(bounded(f"plugins: {error}: only the Debian package has this command"), err=True)
        raise SystemExit(EXIT_CONFIGURATION) from None
    except OSError as error:
        click.echo(bounded(f"plugins: {error.filename}: {error.strerror}: run it as root"), err=True)
        raise SystemExit(EXIT_CONFIGURATION) from None


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
