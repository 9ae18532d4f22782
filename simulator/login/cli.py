"""``fleet-simulator login``: a click command, no logic."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Final

import click

from agent.errors import ConfigurationError, ServiceError
from simulator.credentials import read_secret_file, takes_ca_file
from simulator.exit_codes import ExitCode
from simulator.login.flow import SignIn, SignInOptions
from simulator.login.listener import HOST, PATH, Listener
from simulator.login.request import SignInFailed, query_of
from simulator.login.tokens import TokenSet
from simulator.terminal import option

DEFAULT_PORT: Final = 8976
DEFAULT_SCOPE: Final = "manufacturer:devices manufacturer:commands manufacturer:data"


class CommandLineError(click.ClickException):
    """Usage or configuration: one line on standard error that names the fix."""

    exit_code = ExitCode.USAGE


@click.command("login", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_LOGIN"})
@option("--base-url", required=True, help="Address of the service, such as http://127.0.0.1:8080.")
@option("--auth-url", help="Authorization address, where the service does not say it and it is not --base-url.")
@option("--client-id", required=True, help="The partner application's client identifier.")
@option(
    "--client-secret-file",
    type=click.Path(path_type=Path),
    help="File with the secret of a confidential client. A public client has none and proves itself by PKCE.",
)
@option(
    "--scope", default=DEFAULT_SCOPE, help="What to ask for, with spaces between; the default is what a device needs."
)
@takes_ca_file
@option(
    "--redirect-port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    help=f"Register http://{HOST}:PORT{PATH} for the client: the service compares it to the letter.",
)
@option("--out", type=click.Path(path_type=Path), default=Path("token.json"), help="File for the tokens, mode 600.")
@option("--browser/--no-browser", default=True, help="Open a browser here, or only print the address.")
@option("--paste", is_flag=True, help="For a machine without a browser: paste the address that a browser ended at.")
@option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=300.0, help="Seconds to wait for the browser.")
def login_command(
    *,
    base_url: str,
    auth_url: str | None,
    client_id: str,
    client_secret_file: Path | None,
    scope: str,
    ca_file: Path | None,
    redirect_port: int,
    out: Path,
    browser: bool,
    paste: bool,
    timeout_s: float,
) -> None:
    """Sign in with a browser and keep the tokens in a file that device-agent and ServiceClient renew by themselves.

    Exit code 0: the file holds the tokens. 1: denied, no answer in time, or refused; the file is as it was. 2: usage,
    a port in use, or a file that cannot be written. 5: the service cannot be reached.
    """
    try:
        secret = None if client_secret_file is None else read_secret_file(client_secret_file, "--client-secret-file")
        redirect_uri = f"http://{HOST}:{redirect_port}{PATH}"
        wanted = SignInOptions(base_url, auth_url, client_id, secret, scope, redirect_uri, out, ca_file)
        with SignIn.begun(wanted) as sign_in:
            if paste:
                tokens = sign_in.finish(_ask_for_query(sign_in.url))
            else:
                tokens = _by_browser(sign_in, redirect_port, timeout_s, open_it=browser)
    except ConfigurationError as error:
        raise CommandLineError(error.in_one_line) from None
    click.echo(f"signed in: {out} holds the tokens of {client_id} for {tokens.scope}")


def _by_browser(sign_in: SignIn, port: int, timeout_s: float, *, open_it: bool) -> TokenSet:
    with Listener(port) as listener:
        _send_browser(sign_in.url, open_it=open_it)
        try:
            tokens = sign_in.finish(listener.wait(timeout_s))
        except (ServiceError, SignInFailed) as error:
            listener.show("That did not work", str(error))
            raise
        listener.show("You are signed in", "The terminal goes on by itself; this page can be closed.")
        return tokens


def _send_browser(url: str, *, open_it: bool) -> None:
    # Without a screen the standard library would start a text browser in this very terminal.
    has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if open_it and has_screen and webbrowser.open(url):
        click.echo("sign in, in the browser that has just opened, or in another one at this address:\n", err=True)
    else:
        click.echo("open this address in a browser on this machine and sign in:\n", err=True)
    click.echo(url)


def _ask_for_query(url: str) -> str:
    click.echo("open this address in a browser on any machine and sign in:\n", err=True)
    click.echo(url)
    click.echo("\nthe browser ends at a page that it cannot show; paste the address of that page here", err=True)
    return query_of(click.prompt("address", err=True))
