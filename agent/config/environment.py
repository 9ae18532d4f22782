"""``DEVICE_AGENT_SERVICE__BASE_URL`` and the like, laid over the file's values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from agent.config.text import KeyPath, dotted, read_document

PREFIX: Final = "DEVICE_AGENT_"


def overlay(
    values: dict[str, Any], environ: Mapping[str, str], keys: Collection[str], prefix: str = PREFIX
) -> tuple[dict[KeyPath, str], list[str]]:
    """Put the environment's values into ``values``, in place.

    ``__`` goes one level down; a value that begins with ``[`` or ``{`` is read as YAML, so that a whole list fits; an
    empty variable counts as not set. Variables without ``__`` that are no key of the top level belong to options of
    the command line and are left alone, unless they look like a misspelt key.

    Args:
        values: what the file holds.
        environ: the environment.
        keys: of the top level.
        prefix: of the variables.

    Returns:
        Which variable set which key, and one sentence for each variable that could not be used.
    """
    origins: dict[KeyPath, str] = {}
    faults: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(prefix) or not environ[variable].strip():
            continue
        path = tuple(variable.removeprefix(prefix).lower().split("__"))
        if len(path) == 1 and path[0] not in keys:
            import difflib  # costs memory, and only a mistake needs it

            near = difflib.get_close_matches(path[0], list(keys), n=1, cutoff=0.8)
            if near:
                faults.append(f"{variable}: no such key; did you mean {prefix}{near[0].upper()}?")
            continue
        fault = _put(values, path, environ[variable], variable)
        if fault:
            faults.append(fault)
        else:
            origins[path] = variable
    return origins, faults


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, variable: str) -> str | None:
    holder: Any = values
    for depth, step in enumerate(path[:-1], start=1):
        if holder.get(step) is None:
            holder[step] = {}
        holder = holder[step]
        if not isinstance(holder, dict):
            return f"{variable}: {dotted(path[:depth])} is no section; give the whole of it as one YAML value"
    if text.lstrip()[:1] in {"[", "{"}:
        document = read_document(text)
        if document.faults:
            return f"{variable}: {document.faults[0]}"
        holder[path[-1]] = document.values
    else:
        holder[path[-1]] = text
    return None
