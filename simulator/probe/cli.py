"""``fleet-simulator probe``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path

import click

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError
from agent.wire.trust import trust_store
from simulator.credentials import read_credential, takes_ca_file
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.probe.questions import BROKEN, UNKNOWN, Probe
from simulator.terminal import option


@click.command("probe", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_PROBE"})
@click.argument("url")
@option("--api-key", help="The public key, mk_...; with --secret-key-file.")
@option("--secret-key-file", type=click.Path(path_type=Path), help="File with the secret key, msk_...")
@option("--token-file", type=click.Path(path_type=Path), help="File with a bearer token, instead of the two keys.")
@takes_ca_file
@option("--device-id", default="", help="A test device of the account; needed with --may-write.")
@option("--may-write", is_flag=True, help="Also send readings, a command and its result for the test device.")
@option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request.")
def probe_command(
    *,
    url: str,
    api_key: str | None,
    secret_key_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    device_id: str,
    may_write: bool,
    as_json: bool,
    timeout_s: float,
) -> None:
    """Find out what a server does with each choice that the specification leaves open.

    URL is the base URL. The rules that the specification states are judged, the open choices observed. Some twenty
    requests are sent, none to another host. Without --may-write nothing is changed there and no command is taken.

    Exit code 0: every stated rule holds. 1: one is broken. 2: usage or keys. 3: one could not be judged. 5: the server
    cannot be reached.
    """
    try:
        if may_write and not device_id:
            raise ConfigurationError(["--may-write needs --device-id: a test device whose data may change"], "probe")
        auth = read_credential("probe", api_key, secret_key_file, token_file)
        with Probe(url, auth, timeout_s, None if ca_file is None else trust_store(ca_file)) as probe:
            probe.read()
            if may_write:
                probe.write(device_id)
    except AgentError as error:
        click.echo(bounded(error.in_one_line if isinstance(error, ConfigurationError) else str(error)), err=True)
        click.get_current_context().exit(exit_code_of(error))
    if as_json:
        click.echo(json.dumps(probe.to_json(), indent=2, ensure_ascii=False))
    else:
        _print(probe)
    codes = {BROKEN: ExitCode.CHECK_FAILED, UNKNOWN: ExitCode.INCONCLUSIVE}
    click.get_current_context().exit(next((code for verdict, code in codes.items() if verdict in probe.verdicts), 0))


def _print(probe: Probe) -> None:
    for each in sorted(probe.found, key=lambda found: found.topic == "choice"):
        click.echo(f"{each.topic:<10}  {each.name:<24}  {each.seen}")
    settings = [each.setting for each in probe.found if each.setting]
    if settings:
        click.echo("\nThe agent's configuration could have:\n\nservice:\n  dialect:")
        click.echo("\n".join(f"    {setting}" for setting in settings))
    for text in probe.written:
        click.echo(f"written: {text}")
