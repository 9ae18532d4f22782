"""``device-agent update``: install a signed release by hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from agent.cli.options import is_root
from agent.exit_codes import EXIT_CHECK_FAILED


@click.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    envvar="DEVICE_AGENT_FILE",
    show_envvar=True,
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
    from agent.update.state import Places

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
