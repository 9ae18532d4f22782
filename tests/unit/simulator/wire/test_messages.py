from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent.wire.models import describe_faults, list_faults
from agent.wire.secret import Secret
from gateway.client import SendCommand
from simulator.wire.models import NewRule, Product, ScanAnswer, SignIn


def test_a_command_whose_time_to_live_is_out_of_range_is_not_sent():
    for ttl_seconds in (0, 172_801, 1.0, True):
        with pytest.raises(ValidationError):
            SendCommand.model_validate({"device_id": "d", "command_payload": {}, "ttl_seconds": ttl_seconds})


def test_a_product_of_another_server_is_read():
    product = Product.receive({"productId": 12, "name": "x", "description": None, "colour": "red"})
    assert (product.product_id, product.description) == ("12", None)
    assert product.model_extra == {"colour": "red"}


def test_a_scan_answer_without_the_product_around_its_members_is_read():
    answer = ScanAnswer.receive({"product_id": "p", "name": "Door", "device_identifier": "SN"})
    assert (answer.product.product_id, answer.product.name, answer.device_identifier) == ("p", "Door", "SN")
    assert answer.already_registered is None


def test_faults_name_the_member_in_the_words_of_json_and_never_show_what_was_in_it():
    trigger = {"reading": "t", "op": "~", "value": "msk_x"}
    with pytest.raises(ValidationError) as caught:
        NewRule.model_validate({"product_id": 7, "name": "n", "trigger": trigger, "actions": [{"type": "shout"}]})
    faults = dict(list_faults(caught.value))
    assert faults.keys() == {"product_id", "trigger.op", "trigger.value", "actions.0"}
    assert faults["product_id"] == "must be a string"
    assert "msk_x" not in describe_faults(caught.value) + str(caught.value)


def test_a_password_in_a_message_never_prints():
    sent = SignIn(email="a@example.com", password=Secret("made-up"))
    assert "made-up" not in f"{sent} {sent!r} {sent!s}"
    assert sent.to_wire() == {"email": "a@example.com", "password": "made-up"}
