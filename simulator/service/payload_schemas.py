"""Payload schemas of products: whether one is a JSON Schema, and what it says about a payload.

A schema comes from outside, and no bound of its size bounds the time that it takes: a pattern such as ``^(a+)+$``,
or references that double at each step. So payloads are checked by a process that may be ended
(:mod:`simulator.service.payload_checks`), which runs this module.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

Problem = tuple[str, str]
"""(field, issue)."""

CPU_S: Final = 1.0
"""What checking one payload may cost, of a core's time: a busy machine changes nothing."""
_MEMORY_BYTES: Final = 1024**3
_PROBLEMS_MAX: Final = 50
_NOTHING_FETCHED: Final[Registry[Any]] = Registry()


def schema_problem(schema: Mapping[str, Any]) -> Problem | None:
    """Why this is not a JSON Schema 2020-12, with the place in it; None when it is one."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return ".".join(map(str, exc.absolute_path)), f"is not a JSON Schema 2020-12: {exc.message:.200}"
    except (RecursionError, OverflowError) as exc:  # of a pattern that no regular expression can be made of
        return "", f"cannot be used as a JSON Schema: {exc!s:.200}"
    return None


def payload_problems(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> list[Problem]:
    """What a schema does not allow in a payload."""
    try:
        errors = Draft202012Validator(schema, registry=_NOTHING_FETCHED).iter_errors(payload)
        return [
            (".".join(["command_payload", *map(str, error.absolute_path)]), error.message[:200])
            for error in itertools.islice(errors, _PROBLEMS_MAX)
        ]
    except Unresolvable as exc:
        return [("command_payload", f"the product's payload_schema points nowhere: {exc!s:.200}")]
    except (RecursionError, OverflowError, MemoryError) as exc:
        return [("command_payload", f"the product's payload_schema goes on without end: {exc!s:.200}")]


def main() -> None:
    """Answer each line ``[schema, payload]`` with a line of problems; too costly a payload ends the process."""
    if sys.platform != "win32":
        import resource  # not there on Windows

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this process
    for line in sys.stdin:
        schema, payload = json.loads(line)
        _limit(CPU_S)
        problems = payload_problems(schema, payload)
        _limit(0)
        sys.stdout.write(json.dumps(problems) + "\n")
        sys.stdout.flush()


def _limit(cpu_s: float) -> None:
    """Have the kernel end this process after so much of a core's time; 0 for not at all."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, cpu_s)


if __name__ == "__main__":
    main()
