from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.wire.base import describe_faults, list_faults
from agent.wire.secret import Secret
from agent.wire.sending import SendCommand
from simulator.wire.models import NewProduct, NewRule, Product, ProductChange, ScanAnswer, SignIn


@pytest.mark.parametrize(
    "body",
    [
        {"device_id": 1, "command_payload": {}},
        {"device_id": "", "command_payload": {}},
        {"device_id": "d", "command_payload": []},
        {"device_id": "d", "command_payload": "{}"},
        {"device_id": "d", "command_payload": {}, "ttl_seconds": 0},
        {"device_id": "d", "command_payload": {}, "ttl_seconds": 172_801},
        {"device_id": "d", "command_payload": {}, "ttl_seconds": 1.0},
        {"device_id": "d", "command_payload": {}, "ttl_seconds": True},
    ],
)
def test_a_command_of_the_wrong_shape_is_not_sent(body):
    with pytest.raises(ValidationError):
        SendCommand.model_validate(body)


@given(st.integers(1, 172_800))
def test_every_time_to_live_within_the_bounds_is_sent(ttl):
    assert SendCommand(device_id="d", command_payload={}, ttl_seconds=ttl).to_wire()["ttl_seconds"] == ttl


def test_null_inside_an_opaque_object_is_sent_and_null_members_are_not():
    body = SendCommand(device_id="d", command_payload={"a": None, "b": [None]})
    assert body.to_wire() == {"device_id": "d", "command_payload": {"a": None, "b": [None]}}


def test_a_change_sends_what_was_given_and_null_where_a_field_is_cleared():
    assert ProductChange(category=None).to_wire() == {"category": None}


@pytest.mark.parametrize("body", [{}, {"unknown": 1}, {"name": None}, {"name": ""}, {"commands": [{"title": "x"}]}])
def test_a_change_of_nothing_or_to_nothing_is_refused(body):
    with pytest.raises(ValidationError):
        ProductChange.model_validate(body)


def test_a_product_of_another_server_is_read():
    product = Product.receive({"productId": 12, "name": "x", "description": None, "colour": "red"})
    assert (product.product_id, product.description) == ("12", None)
    assert product.model_extra == {"colour": "red"}


def test_a_scan_answer_without_the_product_around_its_members_is_read():
    answer = ScanAnswer.receive({"product_id": "p", "name": "Door", "device_identifier": "SN"})
    assert (answer.product.product_id, answer.product.name, answer.device_identifier) == ("p", "Door", "SN")
    assert answer.already_registered is None


def test_faults_name_the_member_and_never_show_what_was_in_it():
    with pytest.raises(ValidationError) as caught:
        NewRule.model_validate(
            {
                "product_id": "p",
                "name": "n",
                "trigger": {"reading": "t", "op": "~", "value": "msk_x"},
                "actions": [{"type": "shout"}],
            }
        )
    fields = [field for field, _ in list_faults(caught.value)]
    assert {"trigger.op", "trigger.value", "actions.0"} <= set(fields)
    assert "msk_x" not in describe_faults(caught.value) + str(caught.value)


def test_faults_are_written_in_the_words_of_json_and_each_once():
    with pytest.raises(ValidationError) as caught:
        NewRule.model_validate({"product_id": 7, "name": "x", "trigger": "hot", "actions": [{"type": "mail"}]})
    faults = dict(list_faults(caught.value))
    assert faults["product_id"] == "must be a string"
    assert faults["trigger"] == "must be an object"
    assert faults.keys() == {"product_id", "trigger", "actions.0"}
    with pytest.raises(ValidationError) as caught:
        NewRule.model_validate({"product_id": "p", "name": "x", "trigger": {}, "actions": []})
    assert "at least 1" in dict(list_faults(caught.value))["actions"]


def test_a_product_cannot_be_changed_in_place():
    with pytest.raises(ValidationError):
        NewProduct(name="x").name = "y"  # type: ignore[misc]  # what is tested


def test_a_password_in_a_message_never_prints():
    sent = SignIn(email="a@example.com", password=Secret("made-up"))
    assert "made-up" not in f"{sent} {sent!r} {sent!s}"
    assert sent.to_wire() == {"email": "a@example.com", "password": "made-up"}
