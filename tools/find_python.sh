#!/bin/sh
# Prints the first Python on this machine that can build the virtual environment: 3.11 or newer, with venv and pip.
# PYTHON=... decides alone when it is set. When there is none, says on stderr what is missing and how to get it.
set -u

candidates=${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}
old="" bare=""

for candidate in $candidates; do
    # An empty answer: not installed, or a shim without a version behind it.
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || continue
    if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        old="$old $candidate is $version;"
    elif ! "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
        bare=${bare:-$version}
    else
        command -v "$candidate"
        exit 0
    fi
done

if [ -n "$bare" ]; then
    echo "error: Python $bare is here, but its venv module is not. On Debian and Ubuntu: apt-get install python3-venv" >&2
    echo "       (or python$bare-venv, if $bare is not the system's own Python). Then run make again." >&2
elif [ -n "${PYTHON:-}" ]; then
    echo "error: PYTHON=$PYTHON is no Python 3.11 or newer${old:+ ($old)}. Leave PYTHON unset, or name one that is." >&2
else
    echo "error: no Python 3.11 or newer on PATH${old:+ (found:$old)}. Install one:" >&2
    echo "       Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv" >&2
    echo "       macOS: brew install python@3.12, or the installer of python.org" >&2
    echo "       elsewhere on this machine: make PYTHON=/path/to/python3.11" >&2
fi
exit 1
