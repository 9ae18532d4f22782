"""``fleet-simulator console``: a click command, no logic."""

from __future__ import annotations

import json
from typing import Final

import click

from agent.errors import NotFound
from simulator.control.options import takes_control
from simulator.terminal import CheckFailed, option
from simulator.wire.control import ControlClient

_PATH: Final = "/_emulator/console-links"


@click.command("console")
@takes_control
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def console_command(*, client: ControlClient, as_json: bool) -> None:
    """Print a link that opens the console of a running local service in a browser.

    It opens the console once, within 15 minutes; the browser then stays signed in for 12 hours, or until the service
    ends. Where the service listens for other machines, links for a phone in the same network come with it.

    Exit codes: 0 printed, 1 the service has no console, 2 usage, 5 it cannot be reached.
    """
    try:
        made = client.request("POST", _PATH)
    except NotFound:
        raise CheckFailed("this service has no console: it was started with --no-console, or is older") from None
    if as_json:
        click.echo(json.dumps(made))
        return
    click.echo(f"console  {made['url']}")
    for url in made["network_urls"]:
        click.echo(f"phone    {url}")
    click.echo(f"It opens the console once, within {made['expires_in_s'] // 60} minutes.")
