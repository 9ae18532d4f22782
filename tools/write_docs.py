"""Write the generated pages of docs from the programs themselves: ``make docs``.

The tables come from the click commands and from the JSON Schema of the agent's configuration, so they cannot tell
another story than ``--help`` and ``device-agent config schema``; ``tests/unit/test_docs.py`` compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tables of tests/damage are no part of what is installed
PROGRAMS = {
    "device-agent": "agent.cli.program:device_agent",
    "device-gateway": "gateway.cli.program:device_gateway",
    "fleet-simulator": "simulator.cli:program",
}

COMMANDS_HEAD = """\
# Commands

Every command, argument and option of the three programs. Written by `make docs` from the programs themselves.

Each option can come from its environment variable instead; the command line wins. The names of variables from
before, which `--help` lists too, still work where the present one is not set. `--json`, where a command has it, prints
one JSON document on stdout and nothing else there.

| exit code | means |
|---|---|
| 0 | good |
| 1 | a check or an objective failed |
| 2 | usage or configuration; the message names the fix |
| 3 | inconclusive: the generator, not the target, was the limit; or a rule could not be judged |
| 4 | data lost or changed |
| 5 | the target cannot be reached |
"""

CONFIGURATION_HEAD = """\
# Configuration

Two programs, two files: [the agent's](#the-agent) and [the gateway's](#the-gateway).

## The agent

Every key of the agent's YAML file. Written by `make docs` from the JSON Schema that `device-agent config schema`
prints. `device-agent init` writes a file to start from, `device-agent check` finds all faults of one at once.

A value comes from the first of these that has it: the environment, what the command `update_config` changed, the file,
the default below. Secrets are never written into the file: keys name files that hold them, or systemd credentials bring
them. In the environment a key is called `DEVICE_AGENT_` and its path in capitals, with two underscores for each dot:
`DEVICE_AGENT_SERVICE__BASE_URL`. A list or a mapping is written as YAML in brackets.

A key in `<...>` stands for a name of your choice, `[]` for each item of a list.
"""

GATEWAY_HEAD = """\
## The gateway

Every key of the YAML file of `device-gateway`; [configs/gateway.yaml](../configs/gateway.yaml) has all of them
with their defaults, `device-gateway check` finds all faults of one at once. In the environment a key is called
`DEVICE_GATEWAY_` and its path in capitals: `DEVICE_GATEWAY_MQTT__HOST`.
"""


# --- commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DocumentedCommand:
    """One command with the context that its environment variables and names come from."""

    path: str
    command: click.Command
    context: click.Context

    def parameters(self) -> Iterator[click.Parameter]:
        """What a person may pass, ``--help`` apart."""
        return (p for p in self.command.params if not getattr(p, "hidden", False))


def program(reference: str) -> click.Group:
    """The click group that ``module:attribute`` names.

    Raises:
        TypeError: there is something else.
    """
    module, _, attribute = reference.partition(":")
    group = getattr(import_module(module), attribute, None)
    if not isinstance(group, click.Group):
        raise TypeError(f"{reference} is no click group")
    return group


def walk(path: str, command: click.Command, parent: click.Context | None = None) -> Iterator[DocumentedCommand]:
    """A command and all below it, in the order in which ``--help`` lists them."""
    context = click.Context(command, info_name=path.rsplit(" ", 1)[-1], parent=parent, **command.context_settings)
    yield DocumentedCommand(path, command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from walk(f"{path} {name}", inner, context)


def all_commands() -> list[DocumentedCommand]:
    """Every command of both programs."""
    return [found for name, reference in PROGRAMS.items() for found in walk(name, program(reference))]


def environment_variable(option: click.Option, context: click.Context) -> str | None:
    """The variable that stands in for an option, if one does."""
    if option.envvar:
        return option.envvar if isinstance(option.envvar, str) else option.envvar[0]
    if context.auto_envvar_prefix and option.allow_from_autoenv and option.name:
        return f"{context.auto_envvar_prefix}_{option.name.upper()}"
    return None


def default_text(option: click.Option) -> str:
    """The default as a person would write it; empty when there is none to tell."""
    if isinstance(option.show_default, str):
        return option.show_default
    default = option.default
    if option.required:
        return "required"
    if option.is_flag or option.count or default is None or callable(default) or "UNSET" in repr(default):
        return ""
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return str(default)


def commands_page() -> str:
    """The whole of docs/commands.md."""
    parts = [COMMANDS_HEAD]
    for found in all_commands():
        level = "##" if " " not in found.path else "###"
        usage = " ".join([found.path, *found.command.collect_usage_pieces(found.context)])
        parts.append(f"{level} {found.path}\n\n{help_text(found.command)}\n\n```\n{usage}\n```\n")
        rows = [option_row(p, found.context) for p in found.parameters() if isinstance(p, click.Option)]
        if rows:
            parts.append(table(["option", "default", "environment", "meaning"], rows))
    return "\n".join(parts)


def help_text(command: click.Command) -> str:
    """A command's help, unwrapped into paragraphs; click's verbatim blocks keep their lines."""
    paragraphs = []
    for paragraph in (command.help or command.short_help or "").split("\f")[0].strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines and lines[0] == "\b":
            paragraphs.append("\n".join(["```", *lines[1:], "```"]))
        else:
            paragraphs.append(" ".join(lines))
    return "\n\n".join(paragraphs)


def option_row(option: click.Option, context: click.Context) -> list[str]:
    """One row of a command's table."""
    names = [*option.opts, *option.secondary_opts]
    takes = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    default = default_text(option)
    variable = environment_variable(option, context)
    return [
        f"`{', '.join(names)}{takes}`",
        f"`{default}`" if default else "",
        f"`{variable}`" if variable else "",
        " ".join((option.help or "").split()),
    ]


# --- configuration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigurationKey:
    """One key of the configuration, with its dotted path."""

    path: str
    schema: dict[str, Any]
    required: bool


def configuration_keys(schema: dict[str, Any]) -> Iterator[ConfigurationKey]:
    """Every key below a JSON Schema, sections before their keys, in the order of the models."""
    definitions = schema.get("$defs", {})

    def below(path: str, node: dict[str, Any]) -> Iterator[ConfigurationKey]:
        for form in forms(node, definitions):
            required = form.get("required", [])
            for name, inner in form.get("properties", {}).items():
                here = f"{path}.{name}" if path else name
                # pydantic leaves out a section's description where it is the section's own docstring.
                described = {"description": forms(inner, definitions)[0].get("description", ""), **inner}
                yield ConfigurationKey(here, described, name in required)
                yield from below(here, inner)
            if isinstance(form.get("additionalProperties"), dict) and form["additionalProperties"]:
                yield from below(f"{path}.<name>", form["additionalProperties"])
            if isinstance(form.get("items"), dict):
                yield from below(f"{path}[]", form["items"])

    yield from below("", schema)


def forms(node: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a schema node, with references resolved."""
    if "$ref" in node:
        return forms(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in node:
            return [form for inner in node[word] for form in forms(inner, definitions)]
    return [node]


def type_text(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A key's type and bounds in a few words."""
    words = []
    for form in forms(node, definitions):
        if "enum" in form or "const" in form:
            text = " or ".join(json.dumps(value) for value in form.get("enum", [form.get("const")]))
        elif form.get("type") == "array":
            text = "list"
        elif form.get("type") == "object":
            text = "section" if "properties" in form else "mapping"
        else:
            text = str(form.get("type", "any"))
            low, high = form.get("minimum", form.get("exclusiveMinimum")), form.get("maximum")
            above = ">" if "exclusiveMinimum" in form else ">="
            text += f" {above} {plain(low)}" if low is not None else ""
            text += f" <= {plain(high)}" if high is not None else ""
        if text != "null" and text not in words:
            words.append(text)
    return ", or ".join(words)


# --- scenarios ----------------------------------------------------------------------------------------------------

SCENARIO_HEAD = """\
# Every key of a scenario

Written by `make docs` from the JSON Schema that `fleet-simulator scenario-schema` prints. How scenarios are written is
in [scenarios.md](scenarios.md).

A duration is a number of seconds (`30`, `0.25`) or a number with its unit and no space: `250ms`, `30s`, `5m`, `2h`,
`1d`. A key in `<...>` stands for a name of your choice, `[]` for each item of a list.
"""


@dataclass(frozen=True, slots=True)
class ScenarioSection:
    """One section of a scenario, wherever it may stand.

    Attributes:
        paths: where, in the order in which they were found.
        kind: what its key ``kind`` has to be; empty where it has none.
        schema: of the section.
    """

    paths: list[str]
    kind: str
    schema: dict[str, Any]

    @property
    def title(self) -> str:
        """The heading of its table."""
        kind = f", kind {self.kind}" if self.kind else ""
        return " and ".join(f"`{path}`" for path in self.paths) + kind if self.paths[0] else "The whole"


def scenario_sections(schema: dict[str, Any]) -> list[ScenarioSection]:
    """Every section once, those of the whole before those inside them."""
    definitions = schema.get("$defs", {})
    found: dict[int, ScenarioSection] = {}
    waiting = [("", schema)]
    while waiting:
        path, node = waiting.pop(0)
        for form in forms(node, definitions):
            if id(form) in found:
                if path not in found[id(form)].paths:
                    found[id(form)].paths.append(path)
                continue
            if "properties" in form:
                kind = form["properties"].get("kind", {}).get("const", "")
                found[id(form)] = ScenarioSection([path], kind, form)
            for name, inner in form.get("properties", {}).items():
                waiting.append((f"{path}.{name}" if path else name, inner))
            if isinstance(form.get("additionalProperties"), dict):
                waiting.append((f"{path}.<name>", form["additionalProperties"]))
            waiting += [(f"{path}.<name>", inner) for inner in form.get("patternProperties", {}).values()]
            if isinstance(form.get("items"), dict):
                waiting.append((f"{path}[]", form["items"]))
    return list(found.values())


def scenario_page(schema: dict[str, Any]) -> str:
    """The whole of docs/scenario-keys.md."""
    definitions = schema.get("$defs", {})
    parts = [SCENARIO_HEAD]
    for section in scenario_sections(schema):
        rows = []
        for name, inner in section.schema["properties"].items():
            required = name in section.schema.get("required", [])
            described = {"description": forms(inner, definitions)[0].get("description", ""), **inner}
            default = described.get("default")
            default = int(default) if isinstance(default, float) and default.is_integer() else default
            shown = "required" if required else f"`{json.dumps(default)}`" if is_plain(default) else ""
            kind = "duration" if inner.get("unit") == "s" and "anyOf" in inner else type_text(inner, definitions)
            rows.append([f"`{name}`", kind, shown, " ".join(described["description"].split())])
        about = " ".join(section.schema.get("description", "").replace("``", "`").split())
        parts.append(f"## {section.title}\n\n{about}\n\n{table(['key', 'type', 'default', 'meaning'], rows)}")
    return "\n".join(parts)


def is_plain(value: object) -> bool:
    """Whether a default says something in a table: sections and empty lists do not."""
    return value is not None and not isinstance(value, dict | list)


def plain(number: float) -> str:
    """A bound without an exponent."""
    return str(int(number)) if number == int(number) else str(number)


def configuration_page(agent: dict[str, Any], gateway: dict[str, Any]) -> str:
    """The whole of docs/configuration.md.

    Args:
        agent: the JSON Schema of the agent's configuration.
        gateway: that of the gateway's.
    """
    return f"{CONFIGURATION_HEAD}\n{configuration_table(agent)}\n{GATEWAY_HEAD}\n{configuration_table(gateway)}"


# --- profiles -----------------------------------------------------------------------------------------------------

PROFILE_HEAD = """\
# Every axis of a profile

Written by `make docs` from the model of a profile. What profiles are for is in
[service.md](service.md#profiles-a-server-that-chooses-otherwise). `complete` is every axis at its first value.
"""


def profile_page(schema: dict[str, Any], named: dict[str, dict[str, Any]]) -> str:
    """The whole of docs/profile-axes.md.

    Args:
        schema: the JSON Schema of a profile.
        named: the axes of each named profile that differ from the complete one's.
    """
    rows = []
    for axis, node in schema["properties"].items():
        items = node.get("items", {}).get("enum", [])
        choices = sorted(node.get("enum", items), key=lambda value: value != node["default"])
        values = ", ".join(f"`{value}`" for value in choices)
        if node["type"] == "integer":
            values = f"`{node['default']}`; any from {node['minimum']} to {node['maximum']}"
        kind = f"all of {values}; any of them, joined by `+`, or `none`" if items else values
        rows.append([f"`{axis}`", kind, node["description"]])
    parts = [PROFILE_HEAD, table(["axis", "values", "meaning"], rows)]
    for name, axes in named.items():
        changed = ", ".join(f"`{axis}: {json.dumps(value)}`" for axis, value in axes.items())
        parts.append(f"`{name}` is {changed}.\n")
    return "\n".join(parts)


# --- verdicts -----------------------------------------------------------------------------------------------------

VERDICTS_HEAD = """\
# What is found

Every kind of damage that `tests/damage/` plants, one at a time, and what is said of it. Written by `make docs` from the
tables of that folder; the tests there plant each of them and check exit code and words. Numbers in the words are those
of the small run that is damaged. Damage never ends with exit code 0, but for the few kinds at the end.

| exit code | means |
|---|---|
| 1 | a check failed |
| 2 | the files or the keys cannot be used as they are; the line names the file |
| 3 | it cannot be judged, and the reason is said |
| 4 | data was lost, doubled, changed, or is there and was never sent |
"""


def verdicts_page(chapters: Sequence[Any]) -> str:
    """The whole of docs/verdicts.md.

    Args:
        chapters: as ``tests/damage/kinds.py`` has them.
    """
    parts = [VERDICTS_HEAD]
    for chapter in chapters:
        rows = [
            [kind.place, kind.name, str(int(kind.code)), "; ".join(f"`{words}`" for words in kind.words)]
            for kind in chapter.kinds
        ]
        parts.append(f"## {chapter.title}\n\n{chapter.text}\n")
        parts.append(table(["place", "damage", "exit code", "what is said"], rows))
    return "\n".join(parts)


def configuration_table(schema: dict[str, Any]) -> str:
    """One row for each key."""
    definitions = schema.get("$defs", {})
    rows = []
    for key in configuration_keys(schema):
        kind = type_text(key.schema, definitions)
        if key.required:
            default = "required"
        elif kind == "section" or key.schema.get("default") is None:
            default = ""
        else:
            default = f"`{json.dumps(key.schema['default'])}`"
        unit = key.schema.get("unit", "")
        meaning = " ".join(filter(None, [key.schema.get("description", ""), key.schema.get("why", "")]))
        rows.append([f"`{key.path}`", kind, default, unit, meaning])
    return table(["key", "type", "default", "unit", "meaning"], rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a pipe inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def pages() -> dict[Path, str]:
    """What each generated file holds."""
    # Here, since importing the agent's models is for those who write the pages, not for those who walk the commands.
    from agent.config import AgentConfig
    from gateway.config import gateway_schema
    from simulator.fleet.scenario.model import scenario_schema
    from simulator.service.profiles.model import COMPLETE, PLAIN, ServerProfile

    complete = COMPLETE.model_dump(mode="json")
    plain = {axis: value for axis, value in PLAIN.model_dump(mode="json").items() if value != complete[axis]}
    return {
        ROOT / "docs" / "commands.md": commands_page(),
        ROOT / "docs" / "configuration.md": configuration_page(AgentConfig.model_json_schema(), gateway_schema()),
        ROOT / "docs" / "scenario-keys.md": scenario_page(scenario_schema()),
        ROOT / "docs" / "verdicts.md": verdicts_page(import_module("tests.damage.kinds").CHAPTERS),
        ROOT / "docs" / "profile-axes.md": profile_page(ServerProfile.model_json_schema(), {"plain": plain}),
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}")
