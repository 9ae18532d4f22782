"""``device-agent diagnostics``."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from agent.bounded_text import bounded
from agent.cli.loading import configuration_faults_end_it, load
from agent.cli.options import EXIT_CHECK_FAILED, config_option, json_option, print_json


@click.command()
@config_option
@json_option
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current one",
    envvar="DEVICE_AGENT_DIR",
    show_envvar=True,
    help="The directory that the bundle goes into.",
)
def diagnostics(config_path: Path, folder: Path, *, as_json: bool) -> None:
    """Write a bundle for whoever helps you: status, configuration, log, store, plug-ins, system, and no secrets.

    The running agent is not disturbed. Exit code 1 when the bundle could not be written.
    """
    from agent.app.checks import survey_handlers
    from agent.app.diagnostics import collect, view_from_outside
    from agent.handlers.collect_diagnostics import CollectDiagnostics
    from agent.handlers.upkeep import Bundle, UpkeepRefused

    logging.disable(logging.CRITICAL)  # what a plug-in complains about is in the bundle
    with configuration_faults_end_it():
        loaded = load(config_path)
    bounds = CollectDiagnostics.Settings()
    view = view_from_outside(loaded, os.environ, lambda: survey_handlers(loaded.config).listing())
    try:
        # A person's directory is not tidied up.
        written = collect(view, Bundle(bounds.max_bytes, keep=10**6, max_age_s=float("inf")), folder.absolute())
    except UpkeepRefused as error:
        click.echo(bounded(f"no bundle was written: {error.message}"), err=True)
        raise SystemExit(EXIT_CHECK_FAILED) from None
    if as_json:
        print_json(written)
    else:
        click.echo(f"wrote {written['path']} ({written['size_bytes']} bytes, sha256 {written['sha256']})")
