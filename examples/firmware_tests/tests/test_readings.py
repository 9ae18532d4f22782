"""A reading gets through once, whatever happens to its requests and answers."""

import pytest
from thermometer import Thermometer
from thermometer.firmware import NotAcceptedError


@pytest.fixture
def device_id(account):
    return account.device()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def thermometer(account, device_id, waits):
    return Thermometer(account.base_url, account.headers, device_id, sleep=waits.append)


def stored(account, device_id):
    return [reading["sensor_data"] for reading in account.readings(device_id)]


def test_a_reading_whose_answer_is_lost_is_sent_again_and_stored_once(account, device_id, thermometer):
    lost = account.fault("POST", "/sensor-data", lose="answer", next=1)
    thermometer.send(21.5)
    assert lost.hits == 1
    account.received("POST", "/sensor-data", device_id=device_id, exactly=2)
    assert stored(account, device_id) == [{"celsius": 21.5}]


@pytest.mark.parametrize(
    "effect",
    [
        {"lose": "request"},
        {"reset": "answer"},
        {"answer": {"status": 503}},
        {"truncate": {}},
        {"answer": {"status": 200, "body": "<html>Welcome to Guest Wi-Fi</html>"}},
    ],
    ids=lambda effect: next(iter(effect)),
)
def test_a_reading_survives_what_networks_do(account, device_id, thermometer, effect):
    account.fault("POST", "/sensor-data", next=2, **effect)
    thermometer.send(21.5)
    account.received("POST", "/sensor-data", exactly=3)
    assert stored(account, device_id) == [{"celsius": 21.5}]


def test_it_waits_as_long_as_the_service_says(account, thermometer, waits):
    account.fault("POST", "/sensor-data", answer={"status": 429, "retry_after_s": 17}, next=1)
    thermometer.send(21.5)
    assert waits == [17]


def test_a_reading_that_is_refused_for_good_is_not_sent_again(account, thermometer):
    account.fault("POST", "/sensor-data", answer={"status": 400})
    with pytest.raises(NotAcceptedError):
        thermometer.send(21.5)
    account.received("POST", "/sensor-data", exactly=1)
