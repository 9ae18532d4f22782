"""How devices are dealt out to keys and workers."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from simulator.fleet.plan.shares import connections_of, deal, key_of, keys_of


@st.composite
def fleets(draw):
    workers = draw(st.integers(1, 12))
    return draw(st.integers(workers, 5_000)), workers, draw(st.integers(1, 40))


@given(fleets())
def test_every_device_belongs_to_one_worker_and_none_has_much_more_than_its_share(fleet):
    devices, workers, keys = fleet
    ranges = deal(devices, workers, keys)
    assert [device for each in ranges for device in each] == list(range(devices))
    assert len(ranges) == workers
    assert all(abs(len(each) - devices / workers) <= 0.2 * devices / workers + 2 for each in ranges)
    assert all(ranges)


@given(fleets())
def test_every_key_has_its_share_of_devices_whoever_plays_them(fleet):
    devices, workers, keys = fleet
    counts = Counter(key_of(device, devices, keys) for device in range(devices))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) == min(devices, keys)
    for share in deal(devices, workers, keys):
        assert set(range(keys)[keys_of(share, devices, keys)]) >= {key_of(device, devices, keys) for device in share}


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 5_000))
@example(workers=4, each=1, more=6)
def test_with_a_multiple_of_workers_keys_each_key_is_the_business_of_one_worker(workers, each, more):
    keys = workers * each
    assert owners(keys + more, workers, keys) == [1] * keys


@given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 5_000))
@example(workers=2, more=0, devices=5)
@example(workers=2, more=1, devices=23)
def test_with_five_times_as_many_keys_as_workers_each_key_is_the_business_of_one_worker(workers, more, devices):
    keys = 5 * workers + more
    assert owners(keys + devices, workers, keys) == [1] * keys


def test_with_fewer_keys_workers_share_and_the_load_stays_even():
    assert [len(share) for share in deal(9_000, 4, 3)] == [2_250] * 4
    assert owners(9_000, 4, 3) == [2, 2, 2]


@given(st.integers(1, 300), st.integers(1, 1_000))
def test_all_connections_of_the_run_are_dealt_out_and_no_worker_is_without(workers, connections):
    shares = [connections_of(worker, workers, connections) for worker in range(workers)]
    assert sum(shares) == max(connections, workers)
    assert max(shares) - min(shares) <= 1


def owners(devices: int, workers: int, keys: int) -> list[int]:
    """How many workers use each key."""
    used = Counter(
        key for share in deal(devices, workers, keys) for key in {key_of(device, devices, keys) for device in share}
    )
    return [used[key] for key in range(keys)]
