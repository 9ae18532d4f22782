from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from agent.errors import ConfigurationError
from simulator.fleet.device.handlers import VOCABULARY, payload_fault
from simulator.fleet.target.provisioning import load_product

CONFIGS = sorted((Path(__file__).parents[4] / "configs" / "products").glob("*.yaml"))


def test_the_climate_node_says_exactly_what_virtual_devices_understand():
    product = load_product()
    assert sorted(command.name for command in product.commands) == sorted(VOCABULARY)


@pytest.mark.parametrize("command", load_product().commands, ids=lambda command: command.name)
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"echo": [1]},
        {"names": ["climate"]},
        {"names": []},
        {"name": "climate", "interval_s": 2},
        {"name": "climate", "interval_s": "soon"},
        {"name": "climate", "interval_s": None},
        {"seconds": 3},
        {"seconds": -1},
        {"colour": "red"},
    ],
    ids=str,
)
def test_the_published_schema_and_the_device_agree_about_a_payload(command, payload):
    whole = {"command": command.name, **payload}
    valid = jsonschema.Draft202012Validator(command.payload_schema).is_valid(whole)
    assert (payload_fault(VOCABULARY[command.name], whole) is None) == valid


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_product_in_configs_can_be_created(path):
    product = load_product(path)
    assert product.name
    for command in product.commands or ():
        jsonschema.Draft202012Validator.check_schema(command.payload_schema or {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("category: x", "name: Field required"),
        ("name: [", "is not YAML"),
        ("name: x\ncommands: [{}]", "commands.0.name: Field required"),
        ("name: x\nmetadata: {since: .nan}", "must be a finite number"),
    ],
)
def test_a_file_that_is_no_product_is_told_with_its_name(tmp_path, text, says):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_product(tmp_path / "p.yaml")
    assert says in str(caught.value)
    assert "p.yaml" in str(caught.value)


def test_the_climate_node_in_configs_is_the_one_in_the_package():
    shown = next(path for path in CONFIGS if path.name == "climate-node.yaml")
    assert load_product(shown) == load_product()
