"""``device-agent run``, from the configuration to the exit code, and ``status``, how the agent is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from agent.app.run import HANDLED, run_agent
from agent.app.status import AgentStatus, read_agent_status
from agent.cli.program import (
    ago,
    config_option,
    json_option,
    load,
    print_json,
    print_parts,
    print_table,
    span,
    state_dir,
)
from agent.errors import EXIT_CHECK_FAILED, EXIT_CRASHED, EXIT_REPLACE, EXIT_RESTART, StorageError
from agent.store.status import StoreStatus
from agent.text import bounded

# What was set by commands: intervals, what handlers remember, counters of keys. The agent's own books are in --json.
_FOR_PEOPLE: Final = ("interval.", "handler.", "signed_counter:")


@click.command()
@config_option
def run(config_path: Path) -> None:
    """Run the agent until SIGTERM or Ctrl-C; SIGHUP reads the configuration again.

    A command restart_agent ends it with exit code 75 under a service manager (NOTIFY_SOCKET is set), which starts it
    again; started by hand it replaces itself by a new process image with the same process id. So it does, however it
    was started, for a configuration that only a restart brings into force.
    """
    # A signal that comes while the agent starts is handled as soon as its handler is there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    # As it was: what the agent sets for itself must not reach the process image after it.
    environ = dict(os.environ)
    try:
        exit_code = run_agent(state_dir(config_path), environ, lambda: load(config_path))
    except StorageError as error:  # whoever started this starts it again
        click.echo(bounded(f"error: {error}"), err=True)
        exit_code = EXIT_CRASHED
    except OSError:  # nothing that a person has to mend first, as code 2 would say
        traceback.print_exc()
        exit_code = EXIT_CRASHED
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if exit_code == EXIT_REPLACE or (exit_code == EXIT_RESTART and not environ.get("NOTIFY_SOCKET")):
        exit_code = EXIT_RESTART
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # the program is not where it was: whoever started this starts it anew
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)  # noqa: S606 - this very program
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    sys.exit(exit_code)


@click.command()
@config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the agent is, while it runs and after it died.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    found = read_agent_status(load(config_path).config, os.environ)
    if as_json:
        print_json({**asdict(found), "is_healthy": found.is_healthy})
    else:
        _print(found)
    raise SystemExit(0 if found.is_healthy else EXIT_CHECK_FAILED)


def _print(found: AgentStatus) -> None:
    process = f" (process {found.process_id})" if found.process_id else ""
    click.echo(f"agent      {found.state}{process}, state in {found.state_dir}")
    if found.last_status is not None:
        click.echo(f"device     {found.last_status.device_id}, agent {found.last_status.version}")
        print_parts(found.state, found.last_status)
    if found.server:
        click.echo(f"server     {', '.join(found.server)}")
    if found.store_fault:
        click.echo(f"store      {found.store_fault}")
    if found.store is not None:
        _print_store(found.store)


def _print_store(store: StoreStatus) -> None:
    outbox = store.outbox
    counts = ", ".join(f"{count} {state}" for state, count in store.commands.items()) or "none yet"
    click.echo(f"commands   {counts}")
    oldest = f", the oldest from {ago(outbox.oldest_wall_s)}" if outbox.oldest_wall_s else ""
    click.echo(
        f"readings   {outbox.rows} waiting ({outbox.size_bytes} bytes{oldest}), {outbox.delivered} delivered, "
        f"{outbox.refused} refused, {outbox.dropped} dropped"
    )
    click.echo(f"disk       {store.disk_bytes / 1024**2:.1f} MiB taken by the store")
    for gap in store.gaps:
        length = span(gap.to_wall_s - gap.from_wall_s)
        click.echo(f"  dropped for {gap.reason}: {gap.rows} readings over {length}, the last from {ago(gap.to_wall_s)}")
    if count := store.commands.get("undeliverable", 0):
        click.echo(f"results    {count} undeliverable: the service does not take them")
    for line in store.undeliverable:
        when = f" from {ago(line.finished.wall_s)}" if line.finished else ""
        ended = line.outcome.status if line.outcome else "the end"
        click.echo(f"  {ended} of command {line.command.id} ({line.handler}){when}: {line.undeliverable}")
    for reading in store.refused:
        click.echo(f"  refused: reading {reading.key} from {ago(reading.read_wall_s)}: {reading.reason}")
    for name, value in store.settings.items():
        if name.startswith(_FOR_PEOPLE):
            click.echo(f"setting    {name} = {value}")
    for text in store.incidents:
        click.echo(f"incident   {text}")
    if store.last_commands:
        click.echo("")
        rows = [
            (
                line.command.id,
                line.handler,
                str(line.outcome.status if line.outcome else line.state),
                ago(line.received.wall_s),
                (line.outcome.error if line.outcome else None) or "",
            )
            for line in store.last_commands
        ]
        print_table(("COMMAND", "HANDLER", "STATE", "RECEIVED", "REASON"), rows)
