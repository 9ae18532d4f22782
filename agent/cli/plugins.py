"""``device-agent plugins``: install, remove and list wheels with handlers and sensors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.cli.options import config_option, configuration_faults_end_it, json_option, load, print_json, print_table
from agent.error_text import bounded
from agent.exit_codes import EXIT_CONFIGURATION
from agent.handlers.registry import GROUP as HANDLERS
from agent.sensors.registry import GROUP as SENSORS

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
    from agent.app.status import read_running

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
