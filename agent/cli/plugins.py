"""``device-agent handlers`` and ``device-agent sensors``."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

import click

from agent.cli.loading import configuration_faults_end_it, load
from agent.cli.options import (
    AS_ROOT,
    EXIT_CHECK_FAILED,
    config_option,
    is_root,
    json_option,
    print_json,
    print_table,
)


@click.command()
@config_option
@json_option
def handlers(config_path: Path, *, as_json: bool) -> None:
    """List the command handlers with their state; exit code 1 when one cannot be used."""
    from agent.app.checks import is_usable, survey_handlers

    logging.disable(logging.CRITICAL)  # the list says it better
    with configuration_faults_end_it():
        listing = survey_handlers(load(config_path).config).listing()
    if as_json:
        print_json([asdict(info) for info in listing])
    else:
        rows = [
            (
                info.name,
                str(info.status),
                info.contract,
                "" if info.timeout_s is None else f"{info.timeout_s:g} s",
                info.origin,
                info.reason or info.description,
            )
            for info in listing
        ]
        print_table(("NAME", "STATE", "CONTRACT", "TIMEOUT", "FROM", "WHAT"), rows)
    raise SystemExit(0 if all(map(is_usable, listing)) else EXIT_CHECK_FAILED)


@click.command()
@config_option
@json_option
def sensors(config_path: Path, *, as_json: bool) -> None:
    """Read each configured sensor once and list it with its state; exit code 1 when one cannot be read."""
    from agent.app.checks import read_all_sensors

    logging.disable(logging.CRITICAL)  # the list says it better
    with configuration_faults_end_it():
        found = read_all_sensors(load(config_path).config)
    if as_json:
        print_json({"sensors": [asdict(sensor) for sensor in found.sensors], "types": dict(found.types)})
    else:
        rows = [
            (
                sensor.name,
                sensor.type,
                sensor.state,
                sensor.reason or ", ".join(f"{name}={value:g}" for name, value in sensor.values.items()),
            )
            for sensor in found.sensors
        ]
        print_table(("NAME", "TYPE", "STATE", "READINGS"), rows)
        click.echo(f"\nTypes that can be configured: {', '.join(found.types)}")
        if is_root():
            click.echo(AS_ROOT)
    raise SystemExit(0 if found.all_good else EXIT_CHECK_FAILED)
