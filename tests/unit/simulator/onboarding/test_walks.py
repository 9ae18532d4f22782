"""Random walks and all cases against services in memory: a right one passes, a wrong one is caught."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agent.errors import NotFound
from simulator.labels.payload import label_text
from simulator.onboarding.cases import ADVERSARIAL, Case, Label, transitions
from simulator.onboarding.driver import drive_case
from simulator.onboarding.journal import Journal, leftovers
from simulator.onboarding.journey import STRANGERS, Action, State, StepVerdict, judge_together
from simulator.onboarding.quota import QuotaGate, Timing
from simulator.onboarding.steps import Account, LabelSession, RunContext, Subject
from tests.onboarding_fakes import Clock, MemoryService

US, THEM = "u-1", "u-2"


def context_of(service, stranger=None):
    clock = Clock()
    timing = Timing(clock, clock.sleep)
    other = None if stranger is None else Account(stranger, QuotaGate(timing), name="other")
    return RunContext(Account(service, QuotaGate(timing)), US, THEM, other, Journal(None, {})), timing


def subject(identifier="SN-1", product_id="p-1"):
    return Subject(label_text(product_id, identifier), product_id, identifier)


class Walk(RuleBasedStateMachine):
    """One label, every action at any time."""

    def __init__(self):
        super().__init__()
        self.service = MemoryService()
        self.context, timing = context_of(self.service, MemoryService(()))
        self.session = LabelSession(self.context, subject(), timing.clock)
        self.states = frozenset({State.UNREGISTERED})

    @rule(action=st.sampled_from(Action))
    def do(self, action):
        answer = self.session.perform(action).answer
        judgement = judge_together(self.states, [(action, answer)])
        assert judgement.verdict is StepVerdict.PASSED, (self.states, action, answer)
        self.states = judgement.states

    @invariant()
    def the_table_knows_whose_it_is(self):
        owners = [one.user_id for one in self.service.devices.values() if one.device_identifier == "SN-1"]
        (state,) = self.states
        assert owners == {State.REGISTERED: [US], State.TAKEN: [THEM]}.get(state, [])

    @invariant()
    def the_journal_knows_what_is_there(self):
        assert leftovers(self.context.journal.entries).devices.keys() == self.service.devices.keys()


def test_every_order_of_events_is_explained_by_the_table():
    run_state_machine_as_test(Walk, settings=settings(max_examples=25, stateful_step_count=20, deadline=None))


def play(case: Case, service, stranger=None):
    context, timing = context_of(service, stranger or MemoryService(("p-9",)))
    products = {Label.OTHER_PRODUCT: "p-2", Label.UNKNOWN_PRODUCT: "p-0", Label.DELETED_PRODUCT: "p-0"}
    labels = [
        subject("SN-1", products.get(label, "p-9" if label is Label.STRANGERS_PRODUCT else "p-1"))
        for label in case.labels
    ]
    return drive_case(case, labels, context, timing)


@pytest.mark.parametrize("case", [*transitions(), *ADVERSARIAL], ids=lambda case: case.name)
def test_a_right_service_fails_no_case(case):
    report = play(case, MemoryService(("p-1", "p-2")))
    assert {step.verdict for step in report.steps} <= {StepVerdict.PASSED, StepVerdict.ALLOWED}, report.steps


class Doubling(MemoryService):
    """Makes a device for every registration."""

    def _find(self, product_id, identifier):
        return None


class Giving(MemoryService):
    """Gives a device to whoever registers it."""

    def register_device(self, registration):
        found = self._find(registration.product_id, registration.device_identifier)
        if found is not None:
            self.devices[found.device_id] = found.model_copy(update={"user_id": registration.user_id})
            self.users.add(registration.user_id)
            return self.devices[found.device_id]
        return super().register_device(registration)


class Forgiving(MemoryService):
    """Removes what is not there."""

    def remove_device(self, device_id):
        try:
            super().remove_device(device_id)
        except NotFound:
            return


class Keeping(MemoryService):
    """Says that it removes, and does not."""

    def remove_device(self, device_id):
        if device_id not in self.devices:
            raise NotFound(404, "device_not_found")


class Leaking(MemoryService):
    """Lists everybody's devices to everybody."""

    def user_devices(self, user_id):
        return list(self.devices.values())


class Blind(MemoryService):
    """Every identifier is one device, whatever the product."""

    def _find(self, product_id, identifier):
        return next((one for one in self.devices.values() if one.device_identifier == identifier), None)


@pytest.mark.parametrize(
    ("wrong", "caught_by"),
    [
        (Doubling, {"register_twice", "clone_same_user", "race_same_user", "race_two_users", "registered.register"}),
        (Giving, {"take_over", "clone_other_user", "race_two_users", "registered.another_user_registers"}),
        (Forgiving, {"remove_twice", "remove_before_register", "race_remove", "removed.remove"}),
        (Keeping, {"round_trip", "scan_after_removal", "second_owner", "race_remove", "registered.remove"}),
        (Leaking, {"take_over", "second_owner", "registered.another_user_lists", "race_two_users"}),
        (Blind, {"clone_other_product"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_wrong_service_is_caught_by_the_cases_that_are_for_it(wrong, caught_by):
    failed = {case.name for case in [*transitions(), *ADVERSARIAL] if not play(case, wrong(("p-1", "p-2"))).passed}
    assert caught_by <= failed
    assert "unknown_product" not in failed


def test_after_a_race_that_no_order_explains_nothing_more_is_judged():
    case = next(case for case in ADVERSARIAL if case.name == "race_remove")
    report = play(case, Forgiving(("p-1", "p-2")))
    assert [step.verdict for step in report.steps][2:] == [StepVerdict.FAILED] + [StepVerdict.SKIPPED] * 3


def test_a_stranger_who_is_let_in_is_caught():
    shared = MemoryService(("p-1", "p-2"))
    caught = {case.name for case in transitions() if not play(case, shared, shared).passed}
    assert {f"registered.{action.value.replace(' ', '_')}" for action in STRANGERS} <= caught


def test_a_failure_skips_what_would_only_be_guessed_and_looks_after_a_known_device():
    case = next(case for case in ADVERSARIAL if case.name == "round_trip")
    report = play(case, MemoryService(("p-1",), ["none", "500"]))
    verdicts = [step.verdict for step in report.steps]
    assert verdicts == [StepVerdict.PASSED, StepVerdict.FAILED] + [StepVerdict.SKIPPED] * 4
    report = play(case, MemoryService(("p-1",), ["none", "none", "500"]))
    assert report.steps[3].verdict is StepVerdict.PASSED
