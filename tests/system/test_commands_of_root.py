"""Commands that root types, in folders of unprivileged users who have planted all that can mislead root there.

Each command of both programs runs as a process of root, with a hook that notes every file that it opens, makes,
renames or removes in a foreign folder while it still is root. A command that is new has to be given its words here.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
import yaml

from agent.cli.program import device_agent
from gateway.cli import device_gateway
from tests.conftest import do_without
from tests.support.ports import free_port
from tests.support.processes import run_program
from tools.build_deb import PACKAGES, launcher

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be misled so; CI is root")

USER = 65534
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60

HOOK = """
import os, sys
foreign, noted, program = sys.argv[1].split(":"), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), sys.argv[3]
names = {"open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
         "os.scandir", "os.symlink", "os.truncate", "os.utime", "shutil.chown", "sqlite3.connect", "subprocess.Popen"}
def hook(event, args):
    if event in names and os.geteuid() == 0:
        for each in args:
            path = os.fsdecode(each) if isinstance(each, (str, bytes, os.PathLike)) else ""
            path = path.removeprefix("file://")
            if any(path == one or path.startswith(one + "/") for one in foreign):
                os.write(noted, f"{event} {path}\\n".encode())
sys.addaudithook(hook)
sys.argv = [program, *sys.argv[4:]]
if program == "device-agent":
    from agent.cli import main
else:
    from gateway.cli import main
main()
"""


def _python_for_all() -> tuple[str, dict[str, str]]:
    """A Python with our libraries that another user can run too, and its environment."""
    libraries = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": libraries, "PYTHONDONTWRITEBYTECODE": "1"}
    words = "import os, sys; os.setuid(65534); import agent.cli.check, gateway.config, cryptography, json.tool"
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if Path(program).exists() and run_program([program, "-c", words], env=environment).returncode == 0:
            return program, environment
    return do_without("no Python here can be read by other users than root", "install python3 for all users")


class Site:
    """An agent and a gateway of the user ``nobody``, installed by root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python, self.environment = _python_for_all()
        self.victim = folder / "victim"
        self.victim.write_text("root's\n")
        self.victim.chmod(0o600)
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.marks.chmod(0o1777)
        self.noted = folder / "noted"
        self.noted.touch()
        self.etc = folder / "etc"
        self.etc.mkdir()
        self.agent, self.gateway, self.home = (self._folder(name) for name in ("agent", "gateway", "home"))
        for name, text in (("api_key", "mk_1"), ("secret_key", "msk_1"), ("token", "t1")):
            path = self.etc / name
            path.write_text(text)
            os.chown(path, 0, USER)
            path.chmod(0o640)
        service = {"base_url": f"http://127.0.0.1:{free_port()}", "timeout_s": 1}
        self.agent_config = self._config(
            "agent.yaml",
            {
                "service": service,
                "device": {"device_id": "d1"},
                "auth": {"mode": "bearer", "token_file": str(self.etc / "token")},
                "state_dir": str(self.agent),
            },
        )
        self.gateway_config = self._config(
            "gateway.yaml",
            {
                "service": service,
                "auth": {"api_key_file": str(self.etc / "api_key"), "secret_key_file": str(self.etc / "secret_key")},
                "state_dir": str(self.gateway),
                "http": {"port": free_port()},
                "metrics": {"enabled": False},
            },
        )
        self._plant()

    def _folder(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        self.give(made)
        return made

    def give(self, *paths: Path) -> None:
        for path in paths:
            os.lchown(path, USER, USER)

    def _config(self, name: str, values: dict[str, object]) -> Path:
        path = self.etc / name
        path.write_text(yaml.safe_dump(values))
        return path

    def _plant(self) -> None:
        """What the programs' users can put into their own folders."""
        layer = self.agent / "config.d"
        layer.mkdir()
        says = ["/bin/sh", "-c", f"id -u >> {self.marks}/ran"]
        values = {
            "sensors": [{"name": "own", "type": "program", "interval_s": 1, "settings": {"argv": [*says]}}],
            "executables": {"own": {"argv": says, "contract": "once"}},
        }
        (layer / "remote.yaml").write_text(yaml.safe_dump(values))
        self.give(layer, layer / "remote.yaml")
        for place in (
            *(self.agent / name for name in ("status.json", ".status.json.new", "token.json", "metrics.sock")),
            *(self.gateway / name for name in ("status.json", "broker-wanted", ".passwords.new", "rollouts")),
            *(self.home / name for name in ("config.yaml", ".config.yaml.new", "token", "ca.key", "server.key")),
            *(self.home / name for name in ("passwords", "acl", ".mosquitto.conf.new", "made.key", "api_key")),
        ):
            place.symlink_to(self.victim)
            self.give(place)
        # A journal that SQLite would roll back and delete, with whatever it names.
        for database in (self.gateway / "tokens.db", self.gateway / "invites.db"):
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("CREATE TABLE planted (a)")
            journal = database.with_name(f"{database.name}-journal")
            journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504) + str(self.victim).encode())
            self.give(database, journal)

    def run(self, program: str, *words: object) -> subprocess.CompletedProcess[str]:
        foreign = ":".join(map(str, (self.agent, self.gateway, self.home)))
        command = [self.python, "-c", HOOK, foreign, str(self.noted), program, *map(str, words)]
        try:
            return run_program(command, env=self.environment, cwd=self.folder, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{program} {words[0]} hangs")

    def judge(self, done: subprocess.CompletedProcess[str] | None = None) -> None:
        """Root opened nothing of others, and nothing of root's was touched."""
        said = "" if done is None else f"{done.stdout}{done.stderr}"
        assert not self.noted.read_text(), f"{self.noted.read_text()}{said}"
        assert self.victim.read_text() == "root's\n"
        status = self.victim.stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, 0o600)
        ran = self.marks / "ran"
        assert not ran.exists() or set(ran.read_text().split()) == {str(USER)}, said
        assert "Usage:" not in said, said
        assert "Traceback" not in said, said


@pytest.fixture
def site() -> Iterator[Site]:
    # Others can go there, unlike to pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="root-"))
    folder.chmod(0o755)
    yield Site(folder)
    shutil.rmtree(folder)


def _leaves(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _leaves(inner, *words, name)


AGENT = {
    "check": "--config {agent}",
    "diagnostics": "--config {agent} --dir {home}",
    "doctor": "--config {agent} --offline",
    "enroll": "http://127.0.0.1:9 {code} --dir {home} --no-start --identifier SN-1",
    "keys": "{home}/made",
    "plugins install": "{agent}",
    "plugins list": "--config {agent}",
    "plugins remove": "nothing",
    "status": "--config {agent}",
    "update": "--file {home}/config.yaml",
}
GATEWAY = {
    "broker-config": "--config {gateway} --dir {home} --conf {home}/mosquitto.conf",
    "certificates": "--host gw.example.com --dir {home}",
    "check": "--config {gateway}",
    "devices add": "--config {gateway} --no-check --device-id d1 --config-out {home}/d1 {url}",
    "devices invite": "--config {gateway} --product-id p --user-id u {url}",
    "devices invites": "--config {gateway} --revoke 0",
    "devices list": "--config {gateway}",
    "devices revoke": "--config {gateway} d1",
    "devices rotate": "--config {gateway} d1 --config-out {home}/d1 {url}",
    "init": "--dir {home} --base-url http://127.0.0.1:9 --host gw.example.com --state-dir {home}/state --mqtt --force",
    "rollout": "--config {gateway} --resume --name r",
    "status": "--config {gateway}",
}
COMMANDS = [
    (program, name, known.get(name))
    for program, tree, known in (("device-agent", device_agent, AGENT), ("device-gateway", device_gateway, GATEWAY))
    for name in map(" ".join, _leaves(tree))
    if name != "run"
]


@pytest.mark.parametrize(("program", "name", "words"), COMMANDS, ids=[f"{each[0]} {each[1]}" for each in COMMANDS])
def test_root_opens_nothing_in_a_folder_of_another_user(site: Site, program: str, name: str, words: str | None) -> None:
    assert words is not None, "a new command: give it its words above"
    places = {"agent": site.agent_config, "gateway": site.gateway_config, "home": site.home}
    given = words.format(**places, url="--url http://127.0.0.1:9 --plain", code="DG1P-" + "A" * 26)
    site.judge(site.run(program, *name.split(), *given.split()))


def test_what_a_layer_of_the_agents_user_names_runs_as_that_user(site: Site) -> None:
    done = site.run("device-agent", "plugins", "list", "--config", site.agent_config)
    site.judge(done)
    assert (site.marks / "ran").exists(), f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("program", "config"), [("device-agent", "agent_config"), ("device-gateway", "gateway_config")]
)
def test_the_programs_themselves_run_as_the_owner_of_their_state(site: Site, program: str, config: str) -> None:
    for database in ("tokens.db", "invites.db"):
        (site.gateway / database).unlink()
        (site.gateway / f"{database}-journal").unlink()
    for name in ("status.json", ".status.json.new", "token.json"):
        (site.agent / name).unlink(missing_ok=True)
    (site.gateway / "status.json").unlink()
    state = {"device-agent": site.agent, "device-gateway": site.gateway}[program]
    foreign = ":".join(map(str, (site.agent, site.gateway, site.home)))
    command = [
        site.python,
        "-c",
        HOOK,
        foreign,
        str(site.noted),
        program,
        "run",
        "--config",
        str(getattr(site, config)),
    ]
    with subprocess.Popen(
        command, env=site.environment, cwd=site.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if re.search(r"=ready\b", line):
                    break
            assert process.poll() is None
        finally:
            process.terminate()
            process.stderr.read()
    assert {path.lstat().st_uid for path in state.iterdir()} == {USER}
    site.judge()


FIFOS = [
    *itertools.product(
        ["device-agent"],
        ["status", "check", "doctor --offline"],
        ["status.json", "agent.db", "agent.db-journal", "config.d/remote.yaml"],
    ),
    *itertools.product(
        ["device-gateway"],
        ["status", "check", "devices list"],
        ["status.json", "gateway.db", "tokens.db-journal", "tokens.db"],
    ),
]


@pytest.mark.parametrize(("program", "words", "name"), FIFOS)
def test_a_fifo_holds_no_command_up(site: Site, program: str, words: str, name: str) -> None:
    is_agent = program == "device-agent"
    path = (site.agent if is_agent else site.gateway) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    site.give(path)
    done = site.run(program, *words.split(), "--config", site.agent_config if is_agent else site.gateway_config)
    site.judge(done)
    assert done.returncode != 0 or not is_agent
    assert name in done.stderr


def test_a_configuration_in_another_users_folder_is_read_as_that_user(site: Site) -> None:
    (site.home / "config.yaml").unlink()
    shutil.copyfile(site.agent_config, site.home / "config.yaml")
    site.give(site.home / "config.yaml")
    link = site.folder / "etc" / "link.yaml"
    link.symlink_to(site.home / "config.yaml")
    for path in (site.home / "config.yaml", link):
        done = site.run("device-agent", "plugins", "list", "--config", path)
        site.judge(done)


def test_what_root_writes_for_a_program_stays_roots(site: Site) -> None:
    made = site.folder / "made"
    done = site.run(
        "device-gateway", "init", "--dir", made, "--base-url", "http://127.0.0.1:9", "--host", "gw.example.com",
        "--state-dir", site.folder / "state", "--mqtt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    words = ["--config", made / "config.yaml", "--dir", made / "broker", "--conf", made / "mosquitto.conf"]
    done = site.run("device-gateway", "broker-config", *words, "--user", "nobody")
    assert done.returncode == 0, done.stderr
    for path in made.rglob("*"):
        status = path.stat()
        assert status.st_uid == 0, path
        assert not status.st_mode & 0o022, path
        if path.name in {"passwords", "acl", "server.key"} and path.parent.name == "broker":
            assert (status.st_gid, status.st_mode & 0o777) == (USER, 0o640), path
        if path.name == "ca.key":
            assert status.st_mode & 0o777 == 0o600
    site.judge(done)


def test_root_runs_the_packages_code_and_the_agents_user_the_release(site: Site) -> None:
    tag = f"cp3{sys.version_info.minor}"
    package = next(each for each in PACKAGES if each.release)
    root = site.folder / "device"
    libraries, release = root / "usr/lib" / package.name, Path(f"{root}{package.release}")
    for place, word in ((libraries, "package"), (release, "release")):
        (place / tag).mkdir(parents=True)
        (place / "common").mkdir()
        (place / "common" / "which.py").write_text(f"WORD = {word!r}\n")
    program = root / "program"
    program.write_text(launcher(package, package.name, "import which\nprint(which.WORD)", str(root)))
    for user, word in ((0, "package"), (USER, "release")):
        done = run_program([site.python, "-I", program], user=user)
        assert done.stdout.strip() == word, done.stderr
