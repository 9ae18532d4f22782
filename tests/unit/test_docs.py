"""The documents tell the truth: generated pages are current, links lead somewhere, commands exist."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def texts() -> list[tuple[Path, str]]:
    assert len(DOCUMENTS) > 30
    return [(path, path.read_text(encoding="utf-8")) for path in DOCUMENTS]


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """tools/write_docs.py, loaded from its file, since tools is no package."""
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_current(writer):
    for path, text in writer.pages().items():
        assert path.is_file(), f"{name_of(path)} is missing: make docs"
        assert path.read_text(encoding="utf-8") == text, f"{name_of(path)} is out of date: make docs"


def test_every_command_and_option_has_a_help_text(writer):
    silent = []
    for found in writer.all_commands():
        if not writer.help_text(found.command):
            silent.append(found.path)
        for parameter in found.parameters():
            if isinstance(parameter, click.Option) and not parameter.help:
                silent.append(f"{found.path} {parameter.opts[0]}")
            if isinstance(parameter, click.Argument) and parameter.make_metavar(found.context).strip("[].") not in (
                found.command.help or ""
            ):
                silent.append(f"{found.path} {parameter.name}: name it in the command's help")
    assert not silent, silent


def test_every_option_has_an_environment_variable(writer):
    without = [
        f"{found.path} {parameter.opts[0]}"
        for found in writer.all_commands()
        for parameter in found.parameters()
        if isinstance(parameter, click.Option)
        and "--version" not in parameter.opts
        and not writer.environment_variable(parameter, found.context)
    ]
    assert not without, without


def test_every_command_stands_on_the_page(writer):
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for found in writer.all_commands():
        assert re.search(rf"^##+ {re.escape(found.path)}$", page, re.MULTILINE), found.path


def test_every_configuration_key_is_described_and_numbers_have_a_unit(writer):
    from agent.config import AgentConfig
    from gateway.config import gateway_schema

    schemas = (AgentConfig.model_json_schema(), gateway_schema())
    keys = [key for schema in schemas for key in writer.configuration_keys(schema)]
    assert len(keys) > 40
    assert not [key.path for key in keys if not key.schema.get("description")]
    unitless = [
        key.path for key in keys if re.search(r"_(s|ms|bytes|percent)$", key.path) and not key.schema.get("unit")
    ]
    assert not unitless, unitless


# One test looks at all documents and names what breaks its rule; a test for each document costs more than the look.


def test_a_link_inside_the_project_leads_to_a_file():
    broken = [
        f"{name_of(path)}: {target}"
        for path, text in texts()
        for target in re.findall(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists()
    ]
    assert not broken


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"[^\w\- ]", "", found.lower()) for found in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]
    return {found.replace(" ", "-") for found in plain}


def test_a_link_to_a_heading_finds_it():
    dead = [
        f"{name_of(path)}: {target}#{anchor}"
        for path, text in texts()
        for target, anchor in re.findall(r"\[[^\]]*\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", text)
        if (page := path.parent / target if target else path).suffix == ".md"
        and anchor not in anchors_of(page.read_text(encoding="utf-8"))
    ]
    assert not dead, dead


def test_a_path_of_the_project_that_a_document_names_exists():
    """Decisions and the changelog also name what was there once."""
    named = re.compile(r"`((?:agent|benchmarks|configs|docs|examples|gateway|simulator|systemd|tests|tools)/[\w./-]+)`")
    pages = [(path, text) for path, text in texts() if path.name != "CHANGELOG.md" and path.parent.name != "decisions"]
    found = [(name_of(path), target) for path, text in pages for target in named.findall(text)]
    assert len(found) > 100
    assert not [(page, target) for page, target in found if not (ROOT / target).exists()]


def test_every_document_is_finished():
    unfinished = re.compile(r"GOES_HERE|\b(TODO|FIXME|TBD|XXX)\b")
    assert not [f"{name_of(path)}: {found[0]}" for path, text in texts() for found in unfinished.finditer(text)]


def test_every_page_is_in_the_table_of_contents():
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [p for p in (ROOT / "docs").rglob("*.md") if p != ROOT / "docs" / "README.md"]
    missing = [name_of(p) for p in pages if f"({p.relative_to(ROOT / 'docs')})" not in contents]
    assert not missing, missing


def test_a_make_target_that_a_document_names_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    unknown = [
        f"{name_of(path)}: {named}"
        for path, text in texts()
        for named in re.findall(r"(?:`|^\s*\$?\s?)make ([a-z]+(?:-[a-z]+)*)", text, re.MULTILINE)
        if named not in targets
    ]
    assert not unknown


def test_a_command_that_a_document_shows_exists(writer):
    """In code blocks and code spans: ``device-agent WORD`` and so on."""
    known = {found.path for found in writer.all_commands()}
    names = r"(device-agent|device-gateway|fleet-simulator)"
    shown = re.compile(rf"(?:^(?: {{4}})?|[`$] ?){names} ([a-z]+)(?![\w./-])", re.MULTILINE)
    unknown = [
        f"{name_of(path)}: {program} {word}"
        for path, text in texts()
        for program, word in shown.findall(text)
        if f"{program} {word}" not in known
    ]
    assert not unknown


def test_the_decision_records_are_numbered_without_a_gap():
    numbers = [int(p.name[:4]) for p in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_decision_record_has_its_four_parts():
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    headings = {
        name_of(path): re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) for path in records
    }
    four = ["Status", "Context", "Decision", "Consequences"]
    assert headings == dict.fromkeys(headings, four)


def test_every_key_of_a_scenario_is_described(writer):
    from simulator.fleet.scenario.model import scenario_schema

    schema = scenario_schema()
    sections = writer.scenario_sections(schema)
    keys = [(s.title, name, inner) for s in sections for name, inner in s.schema["properties"].items()]
    assert len(keys) > 150
    definitions = schema["$defs"]
    silent = [
        (title, name)
        for title, name, inner in keys
        if name != "kind"
        and not inner.get("description")
        and not writer.forms(inner, definitions)[0].get("description")
    ]
    assert not silent, silent
    assert not [
        (title, name)
        for title, name, inner in keys
        if re.search(r"(?<!_per)_s$", name) and not duration(inner, definitions, writer)
    ]


def duration(inner, definitions, writer) -> bool:
    forms = [inner, *inner.get("anyOf", []), *writer.forms(inner, definitions)]
    return any("unit" in form for form in forms)
