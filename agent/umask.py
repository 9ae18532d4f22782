"""The mask that a program makes files with."""

from __future__ import annotations

import os
import stat


def close_umask() -> None:
    """Let nobody but the owner write what this process and its children make, where the mask says nothing about it.

    A mask that lets everybody write (000, as some containers and init scripts have it) is nobody's wish. Any other one
    is left alone: 002 lets a group share a folder, 077 keeps everybody out.
    """
    before = os.umask(0o077)
    os.umask(before if before & stat.S_IWOTH else before | stat.S_IWGRP | stat.S_IWOTH)
