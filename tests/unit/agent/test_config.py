from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.config import load_config, read_credentials
from agent.config.model import AgentConfig
from agent.config.yaml_file import MAX_BYTES, parse_yaml
from agent.errors import ConfigurationError

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = [REPOSITORY / "configs" / f"agent-{name}.yaml" for name in ("http", "mqtt")]
GOOD = """\
service:
  base_url: https://api.example.com/v1/
device:
  device_id: d-1
auth:
  allow_secret_key_on_device: true
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def faults_of(path: Path | None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_config(path, environ or {})
    return caught.value.faults


def key_files(tmp_path: Path, first: str = "mk_1", second: str = "msk_1") -> dict[str, str]:
    for name, value in (("api_key", first), ("secret_key", second)):
        path = tmp_path / name
        path.write_text(value + "\n")
        path.chmod(0o600)
    return {"CREDENTIALS_DIRECTORY": str(tmp_path)}


class TestSources:
    def test_the_environment_alone_is_enough(self):
        environ = {"SERVICE__BASE_URL": "http://127.0.0.1:1", "DEVICE__DEVICE_ID": "d", "AUTH__MODE": "bearer"}
        config = load_config(None, {f"DEVICE_AGENT_{name}": text for name, text in environ.items()}).config
        assert config.device.device_id == "d"


class TestFaults:
    def test_all_faults_come_at_once_each_with_its_line(self, write):
        path = write(
            "service:\n  bse_url: x\n  timeout_s: soon\ndevise: {}\ncommands:\n  first_contact: never\nauth:\n"
            "  allow_secret_key_on_device: true\n"
        )
        faults = faults_of(path)
        assert [
            fault
            for fault in faults
            if "service.bse_url (line 2)" in fault and "did you mean 'service.base_url'" in fault
        ]
        assert [fault for fault in faults if "service.timeout_s (line 3) must be a valid number, not 'soon'" in fault]
        assert [fault for fault in faults if "devise (line 4)" in fault and "did you mean 'device'" in fault]
        assert [fault for fault in faults if "commands.first_contact (line 6) must be 'skip-history'" in fault]
        assert all("\n" not in fault for fault in faults)

    def test_a_key_that_is_there_twice_names_both_lines(self, write):
        faults = faults_of(write(GOOD + "device:\n  device_id: d-2\n"))
        assert faults[0].startswith("line 7: device is there twice, first in line 3; remove one of them")

    def test_the_key_pair_is_refused_with_the_reason_and_the_better_ways(self, write):
        faults = faults_of(write(GOOD.replace("true", "false")))
        assert len(faults) == 1
        assert "gateway" in faults[0]
        assert "'bearer'" in faults[0]
        assert "auth.allow_secret_key_on_device: true" in faults[0]

    def test_keys_over_plain_http_are_refused_beyond_this_machine(self, write):
        remote = GOOD.replace("https://api.example.com/v1/", "http://10.0.0.1")
        assert "in the clear" in faults_of(write(remote))[0]
        assert load_config(write(remote.replace("\ndevice:", "\n  allow_plain_http: true\ndevice:")), {})
        for local in ("http://127.0.0.1:8080", "http://[::1]:1", "http://localhost"):
            assert load_config(write(GOOD.replace("https://api.example.com/v1/", local)), {})

    @pytest.mark.parametrize(
        "address",
        [
            "https://h:99999",
            "https://h:port",
            "https://h:0",
            "https://[::1",
            "https://a..b",
            "ftp://h",
            "https://[fe80::1%x]",
        ],
    )
    def test_an_address_that_no_client_takes_is_refused_here(self, write, address):
        (fault,) = faults_of(write(GOOD.replace("https://api.example.com/v1/", address)))
        assert fault.startswith("service.base_url (line 2): write ")

    @pytest.mark.parametrize("folder", ["/var/lib/device-agent", "/var/lib", "/var/lib/device-agent/files"])
    def test_files_by_command_never_go_where_the_agents_memory_is(self, write, folder):
        section = f"commands: {{handlers: {{write_file: {{settings: {{folders: [{folder}]}}}}}}}}\n"
        assert "must not lie in each other" in faults_of(write(GOOD + section))[0]


class TestHostileText:
    def test_an_alias_bomb_is_refused_before_it_grows(self, write):
        bomb = "a: &a [x, x]\n"
        bomb += "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
        assert "line 2: aliases (*a) are not allowed" in faults_of(write(bomb))[0]

    def test_a_huge_file_is_refused(self, write):
        assert "larger than" in faults_of(write("#" * (MAX_BYTES + 1)))[0]

    def test_depth_tags_and_second_documents_are_refused(self, write):
        assert "deep" in faults_of(write("[" * 50 + "]" * 50))[0]
        assert "the tag" in faults_of(write(GOOD + "state_dir: !!python/object:os.system x\n"))[0]
        assert "another document" in faults_of(write(GOOD + "---\nx: 1\n"))[0]

    def test_broken_yaml_names_the_line(self, write):
        assert faults_of(write("service:\n  base_url: 'x\n"))[0].startswith("line 3")

    def test_bytes_that_are_no_text_name_the_line(self, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_bytes(b"a: 1\nb: \xff\n")
        assert faults_of(path) == ["line 2 is not UTF-8 text; save the file as UTF-8"]

    @given(st.integers(-(2**60), 2**60))
    def test_every_integer_is_read_as_itself(self, number):
        assert parse_yaml(str(number), "x")[0] == number

    def test_words_are_what_yaml_1_2_says(self):
        text = "[off, no, 1:30, 2026-01-01, 1e3, true, ~, 'true']"
        assert parse_yaml(text, "x")[0] == ["off", "no", "1:30", "2026-01-01", 1000.0, True, None, "true"]


class TestSecrets:
    def test_a_secret_in_the_file_or_the_environment_is_refused_with_the_place_for_it_and_never_repeated(self, write):
        (fault,) = faults_of(write(GOOD + "  secret_key: msk_very_secret\n"))
        assert "auth.secret_key (line 7)" in fault
        assert "auth.secret_key_file" in fault
        assert "very_secret" not in fault
        (fault,) = faults_of(write(GOOD.replace("d-1", "msk_very_secret")))
        assert "device.device_id (line 4)" in fault
        assert "very_secret" not in fault
        (fault,) = faults_of(write(GOOD), {"DEVICE_AGENT_AUTH__TOKEN": "tok_secret"})
        assert "auth.token (from DEVICE_AGENT_AUTH__TOKEN)" in fault
        assert "did you mean 'auth.token_file'?" in fault
        assert "tok_secret" not in fault

    def test_a_credential_that_the_unit_only_has_a_default_for_is_none(self, write, tmp_path):
        """The unit as shipped has a default for each credential, so that none of their files must be there."""
        folder = tmp_path / "handed-over"
        folder.mkdir()
        environ = key_files(folder)
        (folder / "token").write_text("none\n")
        assert read_credentials(load_config(write(GOOD), {}).config.auth, environ).api_key == "mk_1"
        own = tmp_path / "own-token"
        auth = load_config(write(GOOD), {}).config.auth.model_copy(update={"mode": "bearer", "token_file": own})
        with pytest.raises(ConfigurationError, match="own-token: there is no such file"):
            read_credentials(auth, environ)
        with pytest.raises(ConfigurationError, match="token_file is missing"):
            read_credentials(auth.model_copy(update={"token_file": None}), environ)
        own.write_text("dat_own")
        own.chmod(0o600)
        assert read_credentials(auth, environ).token_path == own

    def test_the_file_that_is_named_goes_before_a_credential_which_is_of_the_start(self, write, tmp_path):
        folder = tmp_path / "handed-over"
        folder.mkdir()
        environ = key_files(folder)
        (folder / "token").write_text("dat_of_the_start")
        (folder / "token").chmod(0o400)
        own = tmp_path / "own-token"
        auth = load_config(write(GOOD), {}).config.auth.model_copy(update={"mode": "bearer", "token_file": own})
        assert read_credentials(auth, environ).secret.reveal() == "dat_of_the_start"
        own.write_text("dat_rotated")
        own.chmod(0o600)
        assert read_credentials(auth, environ).secret.reveal() == "dat_rotated"

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("", "is empty"),
            ("mk_PASTE_THE_KEY_HERE", "still holds the template"),
            ("mk_a b", "more than one word"),
            ("nonsense", "does not begin with mk_"),
            ("mk_ä", "more than one word"),
            ('{"access_token": "canary"}', "a device takes a token alone"),
            ("mk_" + "x" * 9000, "too large"),
        ],
    )
    def test_what_is_no_key_is_refused(self, write, tmp_path, content, words):
        with pytest.raises(ConfigurationError, match=words):
            read_credentials(load_config(write(GOOD), {}).config.auth, key_files(tmp_path, content))

    def test_swapped_key_files_are_told_apart(self, write, tmp_path):
        with pytest.raises(ConfigurationError, match="swap the two") as caught:
            read_credentials(load_config(write(GOOD), {}).config.auth, key_files(tmp_path, "msk_1", "mk_1"))
        assert len(caught.value.faults) == 1

    def test_a_directory_or_a_missing_file_is_one_clear_sentence(self, write, tmp_path):
        text = GOOD + f"  api_key_file: {tmp_path}\n  secret_key_file: {tmp_path}/none\n"
        with pytest.raises(ConfigurationError) as caught:
            read_credentials(load_config(write(text), {}).config.auth, {})
        assert "no regular file" in caught.value.faults[0]
        assert "no such file" in caught.value.faults[1]


class TestDocuments:
    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
    def test_the_example_can_be_used_and_has_every_key_and_no_other(self, example):
        assert load_config(example, {}).config.sensors[0].type == "system"
        schema = AgentConfig.model_json_schema()
        known = {name for model in (schema, *schema["$defs"].values()) for name in model["properties"]}
        found = set(re.findall(r"^[# -]*([a-z][a-z0-9_]*):(?: |$)", example.read_text("utf-8"), re.MULTILINE))
        names_and_words = {"read_sensors", "open_valve", "argv", "reboot"}
        assert found - names_and_words == known

    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
    def test_the_values_in_the_example_are_the_defaults(self, example):
        document = yaml.safe_load(example.read_text("utf-8"))
        given = {name: document[name] for name in ("service", "mqtt", "device", "auth") if name in document}
        defaults = AgentConfig.model_validate(given).model_dump(mode="json")
        for section in ("commands", "outbox", "logging", "executables", "state_dir"):
            assert document[section] == defaults[section] or document[section] == {
                name: value for name, value in defaults[section].items() if name in document[section]
            }


MQTT = """\
mqtt: {host: gateway.example.com}
device: {device_id: d1}
auth: {mode: bearer, token_file: /t}
"""


class TestMqtt:
    def test_a_broker_alone_is_enough_and_has_the_port_of_its_kind(self, write):
        config = load_config(write(MQTT), {}).config
        assert config.service is None
        assert config.mqtt is not None
        assert config.mqtt.port_in_use == 8883
        for more, port in (
            ("tls: false, allow_plain_mqtt: true", 1883),
            ("port: 77", 77),
            ("version: 5", 8883),
            ("version: 3.1.1", 8883),
        ):
            loaded = load_config(write(MQTT.replace("example.com}", f"example.com, {more}}}")), {}).config
            assert loaded.mqtt is not None
            assert loaded.mqtt.port_in_use == port

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ("tls: false", "mqtt.allow_plain_mqtt: true"),
            ("tls: false, allow_plain_mqtt: true, ca_file: /ca", "set tls: true"),
            ("cert_file: /c", "go together"),
            ("version: auto", "mqtt.version"),
            ("token: dat_1", "mqtt.token"),
        ],
    )
    def test_what_cannot_work_is_refused_with_the_key_and_the_fix(self, write, more, said):
        faults = faults_of(write(MQTT.replace("example.com}", f"example.com, {more}}}")))
        [fault] = [each for each in faults if not each.startswith("auth.token_file: /t")]
        assert said in fault

    def test_the_key_pair_is_no_way_into_a_broker(self, write):
        pair = MQTT.replace("{mode: bearer, token_file: /t}", "{allow_secret_key_on_device: true}")
        assert any("auth.mode must be 'bearer' with mqtt" in fault for fault in faults_of(write(pair)))
