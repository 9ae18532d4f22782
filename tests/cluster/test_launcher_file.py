"""The file for Ray's cluster launcher, held against the schema that Ray comes with."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml

from tests.lock_files import ROOT

SCHEMA = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())


def test_the_file_for_rays_launcher_is_valid_and_turns_dashboard_and_statistics_off():
    document = yaml.safe_load((ROOT / "configs" / "cluster" / "ray-cluster.yaml").read_text())
    jsonschema.validate(document, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "provider": {}}, SCHEMA)
    starts = [*document["head_start_ray_commands"], *document["worker_start_ray_commands"]]
    starts = [line for line in starts if "ray start" in line]
    assert len(starts) == 2
    assert all("RAY_USAGE_STATS_ENABLED=0" in line for line in starts)
    assert "--include-dashboard=false" in starts[0]
