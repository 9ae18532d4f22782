"""``auth.mode: bearer`` in the agent: which credential comes of the configuration, and how it is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from agent.adapters.renewed_token import RenewedToken
from agent.app.client import TokenFileCredential, make_client, token_store
from agent.app.tokens import read_token_state
from agent.config import AgentConfig, load_config, read_credentials
from agent.errors import ConfigurationError, SignInEnded, TokensNotStored, Unauthorized
from agent.runtime.retry_policy import describe
from agent.token_store import SeededTokenFile, TokenFile
from agent.wire.refreshing import RefreshingBearer
from agent.wire.secret import Secret

NOW_S = 1_767_225_600.0
SET = {
    "base_url": "https://service.test/v1",
    "client_id": "app",
    "scope": "manufacturer:data",
    "access_token": "at-canary",
    "refresh_token": "rt-canary",
    "expires_at": "2026-01-01T00:30:00Z",
}


@pytest.fixture
def config(tmp_path):
    return configured(tmp_path, tmp_path / "token.json")


def configured(folder: Path, token_file: Path, base_url: str = "https://service.test/v1") -> AgentConfig:
    path = folder / "config.yaml"
    path.write_text(
        f"service: {{base_url: '{base_url}'}}\ndevice: {{device_id: d-1}}\n"
        f"auth: {{mode: bearer, token_file: '{token_file}'}}\nstate_dir: '{folder}/state'\n"
    )
    return load_config(path, {}).config


def hand_over(path: Path, content: str | dict) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o600)
    return path


def credential_of(config: AgentConfig) -> object:
    with make_client(config, config.service, read_credentials(config.auth, {}), "1") as client:
        return client.connection._auth


def test_a_token_set_renews_itself_and_a_token_alone_is_read_again(config, tmp_path):
    hand_over(tmp_path / "token.json", SET)
    assert isinstance(credential_of(config), RefreshingBearer)
    hand_over(tmp_path / "token.json", "a-token")
    assert isinstance(credential_of(config), TokenFileCredential)


def test_renewed_tokens_go_into_the_state_directory_and_the_file_handed_over_is_only_read(config, tmp_path):
    path = hand_over(tmp_path / "token.json", SET)
    store = token_store(config, path)
    assert isinstance(store, SeededTokenFile)
    (tmp_path / "state").mkdir()
    with store.exclusive():
        store.write(replace(store.read(), access_token=Secret("at-2")))
    assert json.loads(path.read_text()) == SET
    assert json.loads((tmp_path / "state" / "token.json").read_text())["access_token"] == "at-2"


def test_signing_in_straight_into_the_state_directory_needs_no_second_file(tmp_path):
    path = hand_over(tmp_path / "state" / "token.json", SET)
    assert isinstance(token_store(configured(tmp_path, path), path), TokenFile)


def test_tokens_of_another_service_are_never_sent_to_this_one(tmp_path):
    path = hand_over(tmp_path / "token.json", SET)
    with pytest.raises(ConfigurationError, match="are for https://service.test/v1, and service.base_url is") as caught:
        credential_of(configured(tmp_path, path, "https://other.test"))
    assert "canary" not in str(caught.value)


def test_a_damaged_file_in_the_state_directory_is_one_sentence(config, tmp_path):
    hand_over(tmp_path / "token.json", SET)
    hand_over(tmp_path / "state" / "token.json", "{damaged")
    with pytest.raises(ConfigurationError, match="is no token file"):
        credential_of(config)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "client app, scope manufacturer:data; the access token ends in 30 min and is renewed by the agent"),
        ({"expires_at": "2025-12-31T23:00:00Z"}, "has ended and is renewed by the agent"),
        ({"expires_at": None}, "renewed when the service asks for it"),
        ({"refresh_token": None}, "they cannot be renewed"),
        ({"scope": None}, "scope not told"),
    ],
)
def test_how_the_tokens_stand_is_one_sentence(config, tmp_path, changes, words):
    hand_over(tmp_path / "token.json", {**SET, **changes})
    found = read_token_state(config, {}, NOW_S)
    assert found.is_usable
    assert words in found.text
    assert "canary" not in found.text


def test_what_only_the_service_manager_hands_over_is_seen_by_what_was_renewed(config, tmp_path):
    """``device-agent status``, run by hand, has no $CREDENTIALS_DIRECTORY."""
    assert "there is no token file" in read_token_state(config, {}, NOW_S).text
    assert not read_token_state(config, {}, NOW_S).is_usable
    hand_over(tmp_path / "state" / "token.json", SET)
    assert "ends in 30 min" in read_token_state(config, {}, NOW_S).text


def test_a_token_alone_and_a_key_pair_have_their_own_words(config, tmp_path):
    hand_over(tmp_path / "token.json", "a-token")
    assert "another program" in read_token_state(config, {}, NOW_S).text
    pair = config.model_copy(update={"auth": config.auth.model_copy(update={"mode": "key_pair"})})
    assert read_token_state(pair, {}, NOW_S).text == ""


def test_a_token_set_in_place_of_a_token_alone_is_never_sent(tmp_path, caplog):
    path = hand_over(tmp_path / "token", "one")
    credential = TokenFileCredential(RenewedToken(path, Secret("one"))).bound_to(httpx.URL("https://service.test"))
    (tmp_path / "new").write_text('{"access_token":"canary"}')
    (tmp_path / "new").replace(path)
    sent = next(iter(credential.auth_flow(httpx.Request("GET", "https://service.test/x"))))
    assert sent.headers["authorization"] == "Bearer one"
    assert "restart the agent" in caplog.text
    assert "canary" not in caplog.text


def test_the_agent_says_what_ended_and_what_to_do():
    state, text, _ = describe(SignInEnded("the service has ended this sign-in; sign in again: ..."))
    assert (state, text) == ("unauthorized", "the service has ended this sign-in; sign in again: ...")
    state, text, every_s = describe(TokensNotStored("the tokens cannot be written"))
    assert (state, text, every_s) == ("tokens_not_stored", "the tokens cannot be written", None)


def test_of_a_401_the_agent_says_which_credentials_are_read_again_and_which_need_a_restart():
    state, text, _ = describe(Unauthorized(401, "invalid_credentials", "unknown keys"))
    assert state == "unauthorized"
    assert "auth.token_file is read again by itself" in text
    assert "for a key pair or a systemd credential restart this program" in text
