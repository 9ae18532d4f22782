"""``--validate-commands``: payloads against their product's command vocabulary.

A schema comes from outside, and no bound of its size bounds the time that it takes: a pattern such as ``^(a+)+$``,
or references that double at each step. So this module is also the program that checks a payload, within limits.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from agent.wire.models import JsonObject
from simulator.service.child_program import ChildProgram
from simulator.service.errors import invalid, invalid_all

Problem = tuple[str, str]
"""(field, issue)."""

MODULE: Final = "simulator.service.payload_checks"
NAMED_BY: Final = "command"
"""The member of a payload that names the command."""
CPU_S: Final = 1.0
"""What checking one payload may cost, of a core's time: a busy machine changes nothing."""
_MEMORY_BYTES: Final = 1024**3
_PROBLEMS_MAX: Final = 50
_NOTHING_FETCHED: Final[Registry[Any]] = Registry()


async def check_payload(checker: ChildProgram, vocabulary: Sequence[Mapping[str, Any]], payload: JsonObject) -> None:
    """Refuse a payload that the vocabulary does not have. An empty vocabulary takes all.

    Raises:
        ApiError: 400 naming each problem; 503 when the service ends.
    """
    if not vocabulary:
        return
    known = {definition["name"]: definition for definition in vocabulary}
    name = payload.get(NAMED_BY)
    if not isinstance(name, str) or name not in known:
        raise invalid(f"command_payload.{NAMED_BY}", f"must be a command of this product: {', '.join(known)}")
    schema = known[name].get("payload_schema")
    if schema is None:
        return
    answer = await checker.run(json.dumps([schema, payload]).encode())
    if answer is None:
        costs = f"takes more than {CPU_S:g} s to check: simplify its patterns and references"
        raise invalid("command_payload", f"the product's payload_schema {costs}")
    problems = [(field, issue) for field, issue in json.loads(answer)]
    if problems:
        raise invalid_all(problems)


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
    """Write the problems of ``[schema, payload]``; too costly a payload ends the process."""
    if sys.platform != "win32":
        import resource  # not there on Windows

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # the kernel ends the process then
    sys.stdout.write(json.dumps(payload_problems(*json.loads(sys.stdin.read()))))


if __name__ == "__main__":
    main()
