#!/usr/bin/python3 -I
"""Starts @PROGRAM@ on the Python of this system, with the libraries that came in the package for it."""

import os
import sys

LIBRARIES = "/usr/lib/@PACKAGE@"
# What `pip install --target` puts there is found too: handlers and sensors of yours.
PLUGINS = "/usr/local/lib/@PACKAGE@/plugins"

own = os.path.join(LIBRARIES, f"cp{sys.version_info.major}{sys.version_info.minor}")
if not os.path.isdir(own):
    there = sorted(f"3.{name[3:]}" for name in os.listdir(LIBRARIES) if name.startswith("cp3"))
    sys.exit(
        f"error: this package has libraries for Python {' and '.join(there)}, and {sys.executable} is "
        f"{sys.version_info.major}.{sys.version_info.minor}: install the package of a newer version, "
        "or install by pip as docs/operations.md says"
    )
# Plug-ins last: none of them replaces a library of the program.
sys.path[:0] = [own, os.path.join(LIBRARIES, "common")]
if os.path.isdir(PLUGINS):
    sys.path.append(PLUGINS)

@START@
