"""A command is carried out once, and its result arrives."""

import pytest
from thermometer import Thermometer


@pytest.fixture
def device_id(account):
    return account.device()


@pytest.fixture
def thermometer(account, device_id):
    return Thermometer(account.base_url, account.headers, device_id, sleep=lambda _: None)


def test_a_command_is_carried_out_and_reported(account, device_id, thermometer):
    command_id = account.send(device_id, "set_interval", interval_s=10)
    assert thermometer.obey() == 1
    assert thermometer.interval_s == 10
    assert account.command(device_id, command_id)["result"] == {"before": 60, "after": 10}


def test_a_result_whose_answer_is_lost_is_reported_again_and_the_command_is_not_carried_out_again(
    account, device_id, thermometer
):
    account.fault("POST", "/devices/{device_id}/commands/{command_id}/result", lose="answer", next=1)
    command_id = account.send(device_id, "set_interval", interval_s=10)
    thermometer.obey()
    account.received("POST", "/devices/{device_id}/commands/{command_id}/result", exactly=2)
    assert account.command(device_id, command_id)["result"] == {"before": 60, "after": 10}
    assert thermometer.obey() == 0


def test_a_command_that_nobody_fetched_is_over_after_an_hour(account, device_id, thermometer, device_service):
    command_id = account.send(device_id, "set_interval", interval_s=10)
    device_service.clock.advance(3601)
    assert thermometer.obey() == 0
    assert account.command(device_id, command_id)["status"] == "expired"
    assert thermometer.interval_s == 60
