"""A Ray cluster of several nodes on this machine. Without Ray (``make test``) nothing of this folder is collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]
