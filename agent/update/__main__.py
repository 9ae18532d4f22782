"""``device-agent-update``: install a release, and guard the one on trial. It runs as root, from the package."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from agent.error_text import disk_refusal
from agent.update.install import begin, install, serve
from agent.update.release import ReleaseRefused
from agent.update.state import TRIAL_UNIT, Places, log_line
from agent.update.trial import after_package, start, watch

_REFUSED: Final = 1


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
    if arguments.word == "install":
        return _install(places, arguments.file)
    if arguments.word == "serve":
        return serve(places)
    try:
        {"start": start, "watch": watch, "after-package": after_package}[arguments.word](places)
    except OSError as error:
        log_line(f"nothing is done: {error}")
        return _REFUSED
    return 0


def _install(places: Places, path: Path) -> int:
    try:
        trial = install(places, path)
    except ReleaseRefused as refusal:
        log_line(f"refused: {refusal}")
        return _REFUSED
    except OSError as error:
        log_line(f"refused: {disk_refusal(error) or error}")
        return _REFUSED
    if trial is None:
        log_line("already installed: this release runs; nothing was done")
        return 0
    begin(places)
    log_line(f"it has {trial.deadline_s:g} s to prove itself; how that ends: journalctl -f -u {TRIAL_UNIT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
