"""``fleet-simulator probe``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError
from agent.wire.probe.line import ProbeLine
from agent.wire.probe.look import look
from agent.wire.probe.report import ProbeReport, ProbeVerdict, report_lines
from agent.wire.trust import trust_store
from simulator.credentials import read_credential, takes_ca_file
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.probe.writing import announce, write
from simulator.terminal import option
from simulator.whole_files import cannot_write, write_whole

_CODES: Final = {
    ProbeVerdict.GOOD: ExitCode.GOOD,
    ProbeVerdict.BROKEN: ExitCode.CHECK_FAILED,
    ProbeVerdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@click.command("probe", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_PROBE"})
@click.argument("url")
@option("--api-key", help="The public key, mk_...; with --secret-key-file.")
@option("--secret-key-file", type=click.Path(path_type=Path), help="File with the secret key, msk_...")
@option("--token-file", type=click.Path(path_type=Path), help="File with a bearer token, instead of the two keys.")
@takes_ca_file
@option("--device-id", default="", help="A test device of the account; needed with --may-write.")
@option("--may-write", is_flag=True, help="Also send readings, two commands and a result for the test device.")
@option("--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as a page.")
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
    html_path: Path | None,
    as_json: bool,
    timeout_s: float,
) -> None:
    """Find out what a server does with each choice that the specification leaves open.

    URL is the base URL. The rules that the specification states are judged, the open choices observed; the report has
    the section service.dialect for the agent, where one is needed, and what is lost by the server's choices. At most
    45 requests are sent, none to another host. Without --may-write nothing is changed there and no command is taken.

    Exit code 0: every stated rule holds. 1: one is broken. 2: usage or keys. 3: one could not be judged. 5: the server
    cannot be reached.
    """
    try:
        if may_write and not device_id:
            raise ConfigurationError(["--may-write needs --device-id: a test device whose data may change"], "probe")
        auth = read_credential("probe", api_key, secret_key_file, token_file)
        trust = None if ca_file is None else trust_store(ca_file)
        with ProbeLine(url, auth, timeout_s=timeout_s, trust=trust) as server:
            report = _probe(server, device_id=device_id, may_write=may_write)
        if html_path is not None:
            _write_page(html_path, report)
    except AgentError as error:
        click.echo(bounded(error.in_one_line if isinstance(error, ConfigurationError) else str(error)), err=True)
        click.get_current_context().exit(exit_code_of(error))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        for line in report_lines(report):
            click.echo(line)
    click.get_current_context().exit(_CODES[report.standing])


def _probe(line: ProbeLine, *, device_id: str, may_write: bool) -> ProbeReport:
    notes = look(line, device_id=device_id)
    if may_write and not notes.is_gateway:
        for sentence in announce(device_id):
            click.echo(bounded(f"writes {sentence}"), err=True)
        write(notes, device_id)
    return notes.report(may_write=may_write and not notes.is_gateway)


def _write_page(path: Path, report: ProbeReport) -> None:
    from simulator.probe.page import probe_page  # Jinja2, only for the page

    try:
        write_whole(path, probe_page(report))
    except OSError as error:
        raise ConfigurationError([cannot_write(path, error, "another --html")], "probe") from None
