"""``device-agent-update``: install a release, and guard the one on trial. It runs as root, from the package."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from agent.text import disk_refusal
from agent.update.install import begin, install, serve
from agent.update.release import ReleaseRefused
from agent.update.state import Places, log_line
from agent.update.trial import TRIAL_UNIT, after_package, start, watch


def main() -> int:
    """The whole program; the exit code: 0 good, 1 refused, 2 usage."""
    parser = argparse.ArgumentParser(prog="device-agent-update", description="Releases of device-agent.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the file system of the device begins")
    words = parser.add_subparsers(dest="word", required=True)
    by_hand = words.add_parser("install", help="install a file and put it on trial")
    by_hand.add_argument("file", type=Path)
    words.add_parser("serve", help="install what the agent has downloaded")
    words.add_parser("start", help="before a start of the service: count it")
    words.add_parser("watch", help="judge the release on trial")
    words.add_parser("after-package", help="after the package was installed")
    arguments = parser.parse_args()
    # The agent's user reads what is written here, whatever root's own habit is.
    os.umask(0o022)
    places = Places(arguments.root)
    try:
        if arguments.word == "install":
            _install(places, arguments.file)
        else:
            {"serve": serve, "start": start, "watch": watch, "after-package": after_package}[arguments.word](places)
    except ReleaseRefused as refusal:
        log_line(f"refused: {refusal}")
        return 1
    except OSError as error:
        log_line(f"refused: {disk_refusal(error) or error}")
        return 1
    return 0


def _install(places: Places, path: Path) -> None:
    trial = install(places, path)
    if trial is None:
        log_line("already installed: this release runs; nothing was done")
        return
    begin(places)
    log_line(f"it has {trial.deadline_s:g} s to prove itself; how that ends: journalctl -f -u {TRIAL_UNIT}")


if __name__ == "__main__":
    sys.exit(main())
