"""``fleet-simulator probe``: options and what is printed."""

from __future__ import annotations

import json

import click

from agent.errors import ConfigurationError
from agent.wire.network import trust_store
from simulator.credentials import ServiceAccess, takes_access
from simulator.exit_codes import ExitCode
from simulator.probe.questions import BROKEN, UNKNOWN, Probe


@click.command("probe")
@takes_access
@click.option("--device-id", default="", help="A test device of the account; needed with --may-write.")
@click.option("--may-write", is_flag=True, help="Also send readings, a command and its result for the test device.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def probe_command(*, access: ServiceAccess, device_id: str, may_write: bool, as_json: bool) -> int:
    """Find out what a server does with each choice that the specification leaves open.

    The rules that the specification states are judged, the open choices observed. Some twenty requests are sent, none
    to another host. Without --may-write nothing is changed there and no command is taken.

    Exit code 0: every stated rule holds. 1: one is broken. 2: usage or keys. 3: one could not be judged. 5: the server
    cannot be reached.
    """
    if may_write and not device_id:
        raise ConfigurationError(["--may-write needs --device-id: a test device whose data may change"], "probe")
    base_url, auth = access.read()
    trust = None if access.ca_file is None else trust_store(access.ca_file)
    with Probe(base_url, auth, access.timeout_s, trust) as probe:
        probe.read()
        if may_write:
            probe.write(device_id)
    if as_json:
        click.echo(json.dumps(probe.to_json(), indent=2, ensure_ascii=False))
    else:
        _print(probe)
    if BROKEN in probe.verdicts:
        return ExitCode.CHECK_FAILED
    return ExitCode.INCONCLUSIVE if UNKNOWN in probe.verdicts else ExitCode.GOOD


def _print(probe: Probe) -> None:
    for each in sorted(probe.found, key=lambda found: found.topic == "choice"):
        click.echo(f"{each.topic:<10}  {each.name:<24}  {each.seen}")
    settings = [each.setting for each in probe.found if each.setting]
    if settings:
        click.echo("\nThe agent's configuration could have:\n\nservice:\n  dialect:")
        click.echo("\n".join(f"    {setting}" for setting in settings))
    for text in probe.written:
        click.echo(f"written: {text}")
