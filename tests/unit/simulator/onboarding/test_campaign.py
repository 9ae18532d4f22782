"""A campaign against a service in memory: whatever is lost, each label is registered exactly once."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigurationError, Forbidden, TransportError, Unauthorized
from simulator.labels.payload import label_text
from simulator.onboarding.campaign import Campaign, key_of
from simulator.onboarding.campaign_report import campaign_json, campaign_lines
from simulator.onboarding.case_labels import ProductAccount
from simulator.onboarding.cleanup import clean_up
from simulator.onboarding.journal import Journal, Place, leftovers, parse_journal, read_journal
from simulator.onboarding.outcomes import Outcome, Plan
from simulator.onboarding.quota import QuotaGate, Timing
from simulator.onboarding.retrying import Retrier
from simulator.onboarding.steps import MARK, Account, RunContext, Subject
from simulator.onboarding.tally import Tally
from tests.onboarding_fakes import FAULTS, Clock, MemoryService

PLAN = Plan("run1", "u-1", concurrency=1)


def labels(count):
    return [
        Subject(label_text("p-1", f"SN-{n}"), "p-1", f"SN-{n}", device_name=f"{MARK}run1:SN-{n}") for n in range(count)
    ]


def start(service, count=3, *, plan=PLAN, journal=None, clock=None, tally=None, **more):
    clock = clock or Clock()
    timing = Timing(clock, clock.sleep)
    gate = QuotaGate(timing)
    context = RunContext(
        Account(service, gate),
        plan.user_id,
        journal=journal or Journal(None, {}),
        tally=tally,
        wall=clock,
    )
    home = ProductAccount(service, Retrier(gate, timing, draw=lambda: 0.5))
    campaign = Campaign(plan, context, home, timing, draw=lambda: 0.5, **more)
    return campaign.run(labels(count)), context


def identifiers(service):
    return sorted(one.device_identifier for one in service.devices.values())


def test_each_label_is_registered_and_the_list_agrees():
    service = MemoryService()
    report, context = start(service, 5)
    assert report.passed
    assert report.count(Outcome.REGISTERED) == 5
    assert identifiers(service) == [f"SN-{n}" for n in range(5)]
    assert all(one.device_name.startswith(MARK) for one in service.devices.values())
    assert len(leftovers(context.journal.entries).devices) == 5


@pytest.mark.parametrize(
    ("script", "ambiguous", "by_list"),
    [
        (["none", "lost"], 1, 1),
        (["none", "500 after"], 1, 1),
        (["none", "refused"], 1, 0),
        (["none", "500"], 1, 0),
        (["none", "lost", "500", "429", "refused", "none"], 1, 1),
        (["none", "429", "429"], 0, 0),
        (["refused", "500", "429"], 0, 0),
    ],
)
def test_after_a_lost_answer_the_list_says_whether_it_was_registered(script, ambiguous, by_list):
    service = MemoryService(faults=script, careless=True)
    report, _ = start(service, 1)
    assert report.passed
    assert (report.ambiguous, sum(one.settled_by == "list" for one in report.results)) == (ambiguous, by_list)
    assert service.registered == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FAULTS), max_size=40), st.booleans())
def test_whatever_fails_in_whatever_order_each_label_is_there_once_and_a_second_start_settles_the_rest(script, remove):
    service = MemoryService(faults=script, careless=True)
    journal = Journal(None, {})
    plan = replace(PLAN, remove=remove, attempts=2)
    report, _ = start(service, 4, plan=plan, journal=journal)
    for _ in range(25):
        assert len(identifiers(service)) == len(set(identifiers(service)))
        if report.passed:
            break
        report, _ = start(service, 4, plan=plan, journal=journal)
    assert report.passed
    assert service.registered == 4
    assert identifiers(service) == ([] if remove else [f"SN-{n}" for n in range(4)])
    assert leftovers(journal.entries).devices.keys() == service.devices.keys()


class Killed(Exception):
    pass


class Dying(Journal):
    """Ends the run in place of a line."""

    def __init__(self, lines):
        self._lines = lines
        super().__init__(None, {})

    def add(self, event, **members):
        if self._lines == 0:
            raise Killed
        self._lines -= 1
        super().add(event, **members)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.lists(st.sampled_from(FAULTS), max_size=12))
def test_a_run_that_ends_at_any_line_of_its_journal_goes_on_without_a_second_registration(cut, script):
    service = MemoryService(faults=script, careless=True)
    dying, journal = Dying(cut), Journal(None, {})
    with contextlib.suppress(Killed):
        start(service, 3, journal=dying)
    journal.entries = list(dying.entries)
    for _ in range(12):
        report, _ = start(service, 3, journal=journal)
        if report.passed:
            break
    assert report.passed
    assert identifiers(service) == ["SN-0", "SN-1", "SN-2"]
    assert service.registered == 3
    assert leftovers(journal.entries).devices.keys() == service.devices.keys()


def test_many_at_once_register_each_label_once():
    service = MemoryService(
        faults=itertools.islice(itertools.cycle(["none", "lost", "none", "500 after", "none"]), 200)
    )
    report, _ = start(service, 60, plan=replace(PLAN, concurrency=8))
    assert report.passed
    assert service.registered == 60


def test_arrivals_keep_their_rate_and_a_label_that_had_to_wait_says_so():
    clock = Clock()
    service = MemoryService()
    scan = service.scan_qr
    begun = []

    def slow(text):
        begun.append(round(clock() - 1000, 3))
        clock.sleep(0.4 if len(begun) == 1 else 0.0)
        return scan(text)

    service.scan_qr = slow
    report, _ = start(service, 4, plan=replace(PLAN, rate=4.0), clock=clock)
    assert report.passed
    assert begun[0] == 0
    assert begun[-1] >= 0.75


def test_what_was_there_before_is_found_and_not_claimed_and_anothers_is_told():
    service = MemoryService()
    start(service, 1)
    other = replace(PLAN, user_id="u-2")
    journal = Journal(None, {})
    report, _ = start(service, 2, plan=other, journal=journal)
    assert [one.outcome for one in report.results] == [Outcome.TAKEN, Outcome.REGISTERED]
    again, _ = start(service, 2, plan=replace(other, remove=True))
    assert [one.outcome for one in again.results] == [Outcome.TAKEN, Outcome.FOUND]
    assert identifiers(service) == ["SN-0", "SN-1"]
    assert len(leftovers(journal.entries).devices) == 1


def test_a_label_of_an_unknown_product_is_refused_and_the_others_go_on():
    service = MemoryService(("p-2",))
    report, _ = start(service, 2)
    assert [one.outcome for one in report.results] == [Outcome.REFUSED] * 2
    assert not report.passed
    assert report.stopped_by is None


@pytest.mark.parametrize("error", [Unauthorized(401), Forbidden(403)])
def test_refused_credentials_stop_the_run_at_once(error):
    service = MemoryService()
    service.scan_qr = lambda text: (_ for _ in ()).throw(error)
    report, _ = start(service, 50)
    assert report.stopped_by is error
    assert report.not_begun >= 45


def test_a_service_that_is_gone_stops_the_run_after_as_many_labels_as_may_be_in_flight():
    service = MemoryService(faults=itertools.repeat("refused"))
    report, _ = start(service, 50, plan=replace(PLAN, concurrency=3, attempts=2))
    assert isinstance(report.stopped_by, TransportError)
    assert report.not_begun >= 40
    assert "refused" in report.audited.problem


def test_a_stop_lets_what_is_in_flight_finish_and_begins_nothing_more():
    stop = threading.Event()
    service = MemoryService()
    register = service.register_device

    def last(registration):
        stop.set()
        return register(registration)

    service.register_device = last
    report, context = start(service, 10, stop=stop)
    assert report.count(Outcome.REGISTERED) == len(service.devices) <= 2
    assert report.not_begun == 10 - len(service.devices)
    service.register_device = register
    report, _ = start(service, 10, journal=context.journal)
    assert report.passed
    assert service.registered == 10


def test_a_quota_makes_everybody_wait_once_for_all():
    service, clock = MemoryService(faults=["429"]), Clock()
    report, _ = start(service, 3, clock=clock)
    assert report.passed
    assert clock.now == pytest.approx(1001.0, abs=0.01)


def test_a_disk_that_is_full_ends_the_run_before_anything_is_sent(tmp_path):
    service = MemoryService()
    with Journal(tmp_path / "journal.jsonl", {"run": "r"}) as journal:
        journal._file.close()
        with (
            Path("/dev/full").open("wb", buffering=0) as journal._file,
            pytest.raises(ConfigurationError, match="--out"),
        ):
            start(service, 2, journal=journal)
    assert service.devices == {}


def test_cleanup_takes_back_what_a_killed_run_left_and_looks_up_what_is_in_doubt():
    service = MemoryService(faults=["none", "lost", *["refused"] * 5])
    report, context = start(service, 1)
    assert [one.outcome for one in report.results] == [Outcome.UNSETTLED]
    left = leftovers(context.journal.entries)
    assert left.in_doubt == (Place("", "u-1", "p-1", "SN-0"),)
    timing = Timing(Clock(), lambda _: None)
    home = ProductAccount(service, Retrier(QuotaGate(timing), timing))
    done = clean_up(context.journal, {"": home})
    assert (len(done.devices), done.problems) == (1, [])
    assert service.devices == {}
    assert leftovers(context.journal.entries).count == 0
    assert clean_up(context.journal, {"": home}).devices == []


def test_the_report_counts_first_attempts_apart_from_retries_and_names_each_label():
    tally = Tally()
    service = MemoryService(faults=["none", "lost"])
    report, _ = start(service, 2, tally=tally)
    document = campaign_json(report, PLAN, tally.as_json(), 0, 0)
    assert json.loads(json.dumps(document))["outcomes"]["registered"] == 2
    assert (document["lost_answers"], document["settled_by_list"]) == (1, 1)
    assert document["list_at_the_end"]["agrees"] is True
    assert any("1; 1 label(s) found in the list" in text for _, text in campaign_lines(report, document))


def test_a_device_that_vanished_or_was_doubled_is_told_by_name():
    service = MemoryService()
    journal = Journal(None, {})
    start(service, 3, journal=journal)
    first, second, _ = list(service.devices)
    renamed = {"device_identifier": "SN-1", "device_id": "twin"}
    service.devices["twin"] = service.devices.pop(first).model_copy(update=renamed)
    assert second in service.devices
    report, _ = start(service, 3, journal=journal)
    assert (report.audited.missing, report.audited.doubled) == (("SN-0",), ("SN-1",))
    assert not report.passed


def test_a_registration_keeps_its_idempotency_key_and_no_two_share_one():
    keys = {key_of(run)(product, name) for run in "ab" for product in "pq" for name in "xy"}
    assert len(keys) == 8
    assert key_of("a")("p", "x") == key_of("a")("p", "x")


def test_a_journal_survives_a_torn_line_and_refuses_what_is_none(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, {"run": "r", "user_id": "u"}) as journal:
        journal.add("registering", device_identifier="x")
    path.write_bytes(path.read_bytes() + b'{"event": "regis')
    with Journal(path, {"run": "other", "user_id": "u"}) as journal:
        assert [entry["event"] for entry in journal.entries] == ["registering"]
        journal.add("registered", device_identifier="x", device_id="d")
    assert [entry["event"] for entry in read_journal(tmp_path)[1]] == ["registering", "registered"]
    with pytest.raises(ConfigurationError, match="user_id differ"):
        Journal(path, {"run": "r", "user_id": "somebody"})
    with pytest.raises(ConfigurationError, match="line 2"):
        parse_journal(path.read_bytes().replace(b'"event": "registering"', b'"event": 7'), path)
    with pytest.raises(ConfigurationError, match="no journal"):
        parse_journal(b'{"event": "x"}\n', path)


def test_one_journal_is_written_by_one_process_at_a_time(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, {"run": "r"}), pytest.raises(ConfigurationError, match="in use"):
        Journal(path, {"run": "r"})


def test_no_secret_gets_into_the_journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl", {"run": "r"}) as journal:
        journal.add("registered", detail="msk_canary_123 was sent")
    assert "canary" not in (tmp_path / "journal.jsonl").read_text()
