"""The manifest for KubeRay says what a run needs of its pods."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import yaml

from simulator.cli import program
from tests.lock_files import ROOT

FOLDER = ROOT / "configs" / "cluster"


def read() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    return document


def groups(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    (workers,) = document["spec"]["workerGroupSpecs"]
    return document["spec"]["headGroupSpec"], workers


def test_dashboard_and_statistics_are_off_and_the_head_makes_no_load():
    head, workers = groups(read())
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert head["rayStartParams"]["include-dashboard"] == "false"
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        # Without them KubeRay asks the dashboard, and no machine would ever be ready.
        assert container["readinessProbe"].keys() & container["livenessProbe"].keys() >= {"tcpSocket"}
    assert workers["template"]["spec"]["containers"][0]["readinessProbe"]["tcpSocket"]["port"] == int(
        workers["rayStartParams"]["node-manager-port"]
    )


def test_a_machine_has_a_unit_of_the_resource_for_each_of_its_cores():
    _, workers = groups(read())
    (text,) = shlex.split(workers["rayStartParams"]["resources"])  # a shell reads it
    (container,) = workers["template"]["spec"]["containers"]
    assert json.loads(text) == {"fleet": int(container["resources"]["limits"]["cpu"])}


def test_what_the_head_is_given_are_options_of_run_and_the_secret_is_a_file():
    head, _ = groups(read())
    (container,) = head["template"]["spec"]["containers"]
    context = program.make_context("fleet-simulator", [], resilient_parsing=True)
    command = program.get_command(context, "run")
    assert command is not None
    known = {f"FLEET_SIMULATOR_RUN_{option.opts[0].strip('-').replace('-', '_').upper()}" for option in command.params}
    given = {each["name"]: each for each in container["env"] if each["name"].startswith("FLEET_")}
    assert given.keys() <= known
    assert not any("SECRET" in str(each.get("valueFrom")) and "secret_key" in str(each) for each in given.values())
    (volume,) = (each for each in head["template"]["spec"]["volumes"] if "secret" in each)
    assert volume["secret"]["defaultMode"] == 0o440, "everybody else on the machine is refused by 'run'"


def test_image_manifest_and_lock_file_have_one_ray():
    pinned = re.search(r"^ray==([\d.]+)", (ROOT / "requirements" / "cluster.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    version, dockerfile = pinned[1], (FOLDER / "Dockerfile").read_text()
    assert read()["spec"]["rayVersion"] == version
    assert f"FROM rayproject/ray:{version}-py311" in dockerfile
    assert "--require-hashes -r requirements/cluster.txt" in dockerfile


def test_the_image_is_made_of_what_a_clone_has_and_of_no_package_with_our_name():
    words = [line.split() for line in (FOLDER / "Dockerfile").read_text().splitlines()]
    copied = [name for line in words if line[:1] == ["COPY"] for name in line[1:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert {"agent", "gateway", "simulator", "pyproject.toml"} <= set(copied)
