"""``fleet-simulator onboard audit``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path

import click

from agent.error_text import bounded
from simulator.exit_codes import ExitCode
from simulator.onboarding.audit_trail import is_torn, read_trail
from simulator.onboarding.cli.options import PREFIX
from simulator.terminal import end, errors_in_one_line, option


@click.command("audit")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("identifier")
@option(
    "--json", "as_json", envvar=f"{PREFIX}_AUDIT_JSON", is_flag=True, help="Print the lines as they are in the file."
)
def audit_command(*, folder: Path, identifier: str, as_json: bool) -> None:
    """Show every request that a run made for one device.

    FOLDER is what --out was, or its audit.jsonl. IDENTIFIER is the device_identifier. Exit code 0: there are some. 1:
    there is none. 2: the file cannot be read, or a line is missing, doubled or moved. 3: its last line was cut off.
    """
    with errors_in_one_line():
        lines = list(read_trail(folder, identifier))
    for line in lines:
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
            continue
        answer = line["status"] or "no answer"
        named = " ".join(str(line[name]) for name in ("error", "request_id") if line[name])
        attempt = f" (attempt {line['attempt']})" if line["attempt"] > 1 else ""
        click.echo(
            f"{line['sent_at']}  {line['method']} {line['path']}  {answer}  {line['what']}{attempt}  {named}".rstrip()
        )
    if not lines:
        click.echo(bounded(f"no request for {identifier!r} in {folder}"), err=True)
    if is_torn(folder):
        click.echo("the last line was cut off and is left out: there may have been more", err=True)
        return end(ExitCode.INCONCLUSIVE)
    return end(ExitCode.GOOD if lines else ExitCode.CHECK_FAILED)
