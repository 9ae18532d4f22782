"""The gateway's configuration: every fault at once, safe defaults, and an example that has every key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agent.errors import ConfigurationError
from gateway.config import PREFIX, GatewayConfig, load_gateway

EXAMPLE = Path(__file__).parents[3] / "configs" / "gateway.yaml"
VALUES = {
    "service": {"base_url": "https://api.example.com/v1"},
    "auth": {"api_key_file": "/etc/device-gateway/api_key", "secret_key_file": "/etc/device-gateway/secret_key"},
}


def keys(folder: Path) -> dict[str, str]:
    for name, text in (("api_key", "mk_1"), ("secret_key", "msk_1")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return {"CREDENTIALS_DIRECTORY": str(folder)}


def faults(folder: Path, **sections: object) -> list[str]:
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump({"service": {"base_url": "https://api.example.com"}, **sections}))
    try:
        load_gateway(path, keys(folder))
    except ConfigurationError as error:
        return error.faults
    return []


def test_the_example_mentions_every_key():
    text = EXAMPLE.read_text("utf-8")
    schema = GatewayConfig.model_json_schema()
    names = [name for model in (schema, *schema["$defs"].values()) for name in model["properties"]]
    assert [name for name in names if f"{name}:" not in text] == []


def test_the_values_in_the_example_are_the_defaults():
    document = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    assert GatewayConfig.model_validate(document) == GatewayConfig.model_validate(VALUES)


def test_every_fault_is_told_at_once_with_its_line_and_the_fix(tmp_path):
    path = tmp_path / "gateway.yaml"
    path.write_text("service:\n  base_url: ftp://x\nmqtt:\n  prot: 1\nmetrics:\n  port: many\n")
    with pytest.raises(ConfigurationError) as caught:
        load_gateway(path, {f"{PREFIX}HTTP__PORT": "x"})
    text = "\n".join(caught.value.faults)
    for part in (
        "base_url (line 2)",
        "did you mean 'mqtt.port'",
        "port (line 6)",
        f"{PREFIX}HTTP__PORT",
    ):
        assert part in text


def test_a_secret_in_the_file_is_refused_and_never_repeated(tmp_path):
    found = faults(tmp_path, auth={"secret_key": "msk_abc"})
    assert found
    assert "msk_abc" not in "\n".join(found)


@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        ({"http": {"host": "0.0.0.0"}}, "http.certificate"),
        ({"http": {"private_key": "/k.pem"}}, "http.private_key needs"),
        ({"mqtt": {"enabled": True, "host": "broker.example.com"}}, "mqtt.tls"),
        ({"mqtt": {"ca_file": "/ca.pem"}}, "needs mqtt.tls: true"),
        ({"commands": {"poll_s": 0}}, "commands.poll_s"),
        ({"readings": {"gather_s": 1}}, "readings"),
    ],
)
def test_what_cannot_work_or_would_leak_is_refused(tmp_path, sections, fault):
    assert any(fault in each for each in faults(tmp_path, **sections))


def test_systemds_credentials_are_enough(tmp_path):
    environ = {**keys(tmp_path), f"{PREFIX}SERVICE__BASE_URL": "https://api.example.com"}
    config = load_gateway(None, environ)
    assert config.auth.credentials(environ).api_key == "mk_1"
