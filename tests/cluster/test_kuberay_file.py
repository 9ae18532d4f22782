"""The manifest for KubeRay: pods held against Kubernetes's own schema, the rest against what ray.io/v1 takes."""

from __future__ import annotations

import copy
import json
import re
import shlex
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from simulator.cli import program
from tests.lock_files import ROOT

FOLDER = ROOT / "configs" / "cluster"
KUBERNETES = "1.31"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
POD = {"type": "object", "required": ["spec"]}


def exactly(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "additionalProperties": False, "properties": properties}


RAY_CLUSTER = exactly(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata={"type": "object", "required": ["name"]},
    spec=exactly(
        ("headGroupSpec",),
        rayVersion={"type": "string"},
        suspend={"type": "boolean"},
        enableInTreeAutoscaling={"type": "boolean"},
        headServiceAnnotations=TEXTS,
        headGroupSpec=exactly(
            ("rayStartParams", "template"),
            serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
            enableIngress={"type": "boolean"},
            rayStartParams=TEXTS,
            template=POD,
        ),
        workerGroupSpecs={
            "type": "array",
            "items": exactly(
                ("groupName", "maxReplicas", "minReplicas", "rayStartParams", "template"),
                groupName={"type": "string"},
                replicas=COUNT,
                minReplicas=COUNT,
                maxReplicas=COUNT,
                numOfHosts=COUNT,
                rayStartParams=TEXTS,
                template=POD,
            ),
        },
    ),
)
"""The keys of KubeRay's resource that a person writes, as its published CRD has them; others are dropped there."""


def read() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    return document


def groups(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    (workers,) = document["spec"]["workerGroupSpecs"]
    return document["spec"]["headGroupSpec"], workers


def check(document: dict[str, Any]) -> None:
    jsonschema.validate(document, RAY_CLUSTER)
    for group in groups(document):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_manifest_is_valid_and_a_wrong_key_anywhere_is_found():
    document = read()
    check(document)
    for path, name in (
        (("spec",), "headGroupSpecs"),
        (("spec", "headGroupSpec"), "resources"),
        (("spec", "headGroupSpec", "template", "spec"), "volume"),
        (("spec", "workerGroupSpecs", 0, "template", "spec", "containers", 0, "readinessProbe"), "tcpsocket"),
    ):
        wrong = copy.deepcopy(document)
        place = wrong
        for step in path:
            place = place[step]
        place[name] = {}
        with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
            check(wrong)


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
