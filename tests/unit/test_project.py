"""The project keeps its own rules: dependencies, lock files, imports, and what must never be in the tree."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lock_files import APART, EXTRAS, LOCK_FILES, PROJECT, ROOT, check_dependencies, direct_requirements, pins

PACKAGES = ("agent", "gateway", "simulator")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# The five, and what two of them are made of: pydantic's parser, httpx's list of authorities.
BASE_IMPORTS = {"httpx", "paho", "pydantic", "yaml", "click"} | {"pydantic_core", "certifi"}
# The extra "gateway": on a server, not on a device.
GATEWAY_IMPORTS = {"cryptography", "prometheus_client", "qrcode", "starlette", "uvicorn", "uvloop"}
# Modules of the agent that need an extra: each imported only when the configuration asks for it.
EXTRA_IMPORTS = {
    "agent/app/metrics.py": {"prometheus_client"},
    "agent/wire/network.py": {"httpcore"},  # what httpx itself sends with
    "agent/release/archive.py": {"cryptography"},  # in the package
    "agent/wire/signed_keys.py": {"cryptography"},
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- dependencies and lock files --------------------------------------------------------------------------------


def test_the_agent_has_exactly_its_five_base_dependencies():
    names = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    assert names == {"httpx", "paho-mqtt", "pydantic", "pyyaml", "click"}


def test_there_is_a_lock_file_for_each_set_of_dependencies():
    assert [path.stem for path in LOCK_FILES] == sorted({"base", "build", *EXTRAS})


def test_the_build_group_is_what_the_build_system_requires():
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_pins_every_dependency_at_an_allowed_version(path):
    pinned = pins(path)
    for requirement in direct_requirements(path.stem):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is missing: make lock"
        assert requirement.specifier.contains(pinned[name], prereleases=True), f"{name} {pinned[name]}: make lock"


@pytest.mark.parametrize("path", [path for path in LOCK_FILES if path.stem != APART], ids=lambda path: path.stem)
def test_a_lock_file_pins_what_its_dependencies_depend_on(path):
    check_dependencies(path)


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_holds_only_exact_pins_with_hashes(path):
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    statements = [line for line in text.replace("\\\n", "").splitlines() if line]
    assert statements
    for statement in statements:
        assert re.match(r"[A-Za-z0-9_.-]+(\[[^\]]*\])?==\S+", statement), statement
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", statement), statement


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_names_no_index_and_no_address(path):
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|://| @ ", path.read_text(encoding="utf-8"))


def test_all_lock_files_pin_the_same_versions():
    widest = pins(ROOT / "requirements" / "dev.txt")
    for path in LOCK_FILES:
        both = {name: version for name, version in pins(path).items() if path.stem != APART or name in widest}
        differing = {name for name, version in both.items() if widest.get(name) != version}
        assert not differing, f"{path.name}: {sorted(differing)}: make lock"


# --- imports and modules ----------------------------------------------------------------------------------------


def test_imports_point_one_way():
    """The contracts of [tool.importlinter], run as ``make check`` runs them."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-logo"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_a_package_that_imports_it():
    """Circles between a package and what is inside it, which the contract against circles does not see."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    rings = [
        f"{module} -> {package}"
        for module in sorted(graph.modules)
        for package in graph.find_modules_directly_imported_by(module)
        if module.startswith(f"{package}.") and graph.chain_exists(importer=package, imported=module)
    ]
    assert not rings


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rules ask of one module: parsing them all takes seconds, and their trees a lot of memory."""

    path: Path
    imports: frozenset[str]
    unfinished: tuple[int, ...]
    lines: int
    says_what_it_is_for: bool
    ignores_any_type: bool


@functools.cache
def seen(path: Path) -> Seen:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports: set[str] = set()
    unfinished = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: imports are absolute"
            module = node.module or ""
            imports |= {f"{module}.{alias.name}" for alias in node.names} if module == "agent" else {module}
        elif isinstance(node, ast.Name) and node.id == "NotImplementedError":
            unfinished.append(node.lineno)
    return Seen(
        path,
        frozenset(imports),
        tuple(unfinished),
        len(text.splitlines()),
        not text.strip() or bool(ast.get_docstring(tree)),
        bool(re.search(r"#\s*type:\s*ignore(?!\[)", text)),
    )


def modules_of(*packages: str) -> list[Seen]:
    found = [seen(path) for path in MODULES if path.relative_to(ROOT).parts[0] in packages]
    assert len(found) > 60
    return found


# One test looks at all modules and names each that breaks its rule; a test for each module costs more than the look.


def test_the_agent_imports_only_the_standard_library_and_its_base_dependencies():
    foreign = {}
    for module in modules_of("agent"):
        extra = EXTRA_IMPORTS.get(name_of(module.path), set())
        roots = {name.split(".")[0] for name in module.imports}
        if beyond := roots - (sys.stdlib_module_names | BASE_IMPORTS | extra | {"agent"}):
            foreign[name_of(module.path)] = sorted(beyond)
    assert not foreign


def test_the_client_of_operators_and_apps_needs_the_base_dependencies_alone():
    """Scripts use it beside an agent; only signing labels needs the extra ``signing``."""
    found = [seen(path) for path in (ROOT / "simulator" / "wire").rglob("*.py")]
    assert len(found) > 10
    known = sys.stdlib_module_names | BASE_IMPORTS | {"agent", "simulator"}
    roots = {name_of(module.path): {name.split(".")[0] for name in module.imports} for module in found}
    beyond = {name: sorted(used - known) for name, used in roots.items() if used - known}
    assert beyond == {"simulator/wire/qr/keys.py": ["cryptography"]}


def test_the_gateway_imports_nothing_beyond_its_extra_and_the_agent():
    known = sys.stdlib_module_names | BASE_IMPORTS | GATEWAY_IMPORTS | {"agent", "gateway"}
    roots = {name_of(module.path): {name.split(".")[0] for name in module.imports} for module in modules_of("gateway")}
    assert {name: sorted(used - known) for name, used in roots.items() if used - known} == {}


def test_the_simulator_uses_only_the_shared_rooms_of_the_agent():
    """The rest of the agent it runs as the process ``device-agent``."""
    allowed = {"agent.errors", "agent.wire", "agent.core", "agent.ports", "agent.token_store"}
    # What a scenario says of a server is what the agent's configuration says of it.
    # And one parser of HTTP bounds what comes, and keeps trailers apart from headers, for both servers.
    shared = {
        "agent.error_text",
        "agent.cli.lazy",
        "agent.process.setup",
        "agent.config.dialect",
        "gateway.http.accepting",
        "gateway.http.connection_limits",
        "gateway.http.protocol",
    }
    foreign = {}
    for module in modules_of("simulator"):
        used = {name for name in module.imports if name.split(".")[0] in {"agent", "gateway"}} - shared
        if beyond := {".".join(name.split(".")[:2]) for name in used} - allowed:
            foreign[name_of(module.path)] = sorted(beyond)
    assert not foreign


def test_every_module_says_what_it_is_for():
    silent = [name_of(module.path) for module in modules_of(*PACKAGES) if not module.says_what_it_is_for]
    assert not silent, "write a module docstring"


def is_there(name: str) -> bool:
    """Whether a dotted name is a package or a module, or begins with one in whose text the next word stands."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        text = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
        if text.is_file():
            rest = parts[count : count + 1]
            return not rest or re.search(rf"\b{rest[0]}\b", text.read_text(encoding="utf-8")) is not None
    return False


def test_what_a_docstring_refers_to_by_its_module_is_there():
    reference = re.compile(r":(?:mod|class|func|data|meth):`~?((?:agent|gateway|simulator)\.[\w.]+)`")
    found = {(name_of(path), name) for path in MODULES for name in reference.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 200
    assert not sorted((path, name) for path, name in found if not is_there(name))


def test_every_module_stays_readable_at_one_sitting():
    long = {name_of(module.path): module.lines for module in modules_of(*PACKAGES) if module.lines > 500}
    assert not long, "split it"


def test_a_type_is_never_ignored_without_a_code():
    assert not [name_of(module.path) for module in modules_of(*PACKAGES) if module.ignores_any_type]


def test_nothing_is_left_unfinished():
    unfinished = {name_of(m.path): m.unfinished for m in modules_of(*PACKAGES) if m.unfinished}
    assert not unfinished


def test_every_package_ships_its_types():
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing"


# --- what must never be in the tree -----------------------------------------------------------------------------

TEXT_FILES = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".service", ".conf", ".sh", ".cfg", ".html", ""}
LEAVE_OUT = {"build", "dist", "demo-output", ".locust", "node_modules", "__pycache__"}


def project_files() -> list[Path]:
    """The text files of the project: what git would take, found without git."""
    found = []
    for top in sorted(ROOT.iterdir()):
        if top.name in LEAVE_OUT or (top.name.startswith(".") and top.name not in {".ci", ".gitignore"}):
            continue
        inside = [top] if top.is_file() else sorted(top.rglob("*"))
        found += [p for p in inside if p.is_file() and p.suffix in TEXT_FILES and not LEAVE_OUT & set(p.parts)]
    return found


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(?<![\w.])/(?:root|work|opt/pypi|home/[a-z]+|Users/[A-Za-z]+)/[\w.]", "a path of one machine"),
        (r"\bmsk_live_\w+|-----BEGIN [A-Z ]*PRIVATE KEY-----", "a secret"),
        (r"(?i)\b(?:pypi|npm|registry)\.[a-z0-9.-]+\.(?:internal|corp|local)\b", "the address of a private registry"),
    ],
)
def test_the_tree_holds_nothing_of_one_machine(pattern, what):
    files = project_files()
    assert len(files) > len(LOCK_FILES)
    hits = [
        f"{name_of(path)}: {match[0]}"
        for path in files
        if path != Path(__file__)
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"))
    ]
    assert not hits, f"{what}: {hits}"


# --- releases ---------------------------------------------------------------------------------------------------


def test_the_changelog_has_this_version_on_top():
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[:1] == [PROJECT["project"]["version"]]


def test_every_make_target_says_what_it_does():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
