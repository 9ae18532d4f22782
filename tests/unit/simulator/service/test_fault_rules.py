"""Which requests meet a fault: times, order, counts, chance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.wire.base import list_faults
from simulator.service.errors import Conflict, Invalid, NotFound
from simulator.service.faults.model import HELD_MAX_S, NewFault, find_contradictions
from simulator.service.faults.rules import RULES_MAX, FaultRule, FaultRules
from simulator.service.matching import Matcher, PathTemplates, RequestFacts, make_matcher

TEMPLATES = PathTemplates({"/sensor-data": {"GET", "POST"}})
POST = RequestFacts("POST", "/sensor-data", "/sensor-data")
GET = RequestFacts("GET", "/sensor-data", "/sensor-data")
HEAD = RequestFacts("HEAD", "/sensor-data", "/sensor-data")
LOSE = {"lose": "answer"}


def add(rules: FaultRules, *, now_ms: int = 1000, **members: Any) -> FaultRule:
    wanted = NewFault.model_validate({"effect": LOSE, **members})
    matcher, issues = make_matcher(wanted.match, TEMPLATES)
    assert not issues
    return rules.add(wanted, matcher, now_ms)


def hits(rules: FaultRules, requests: int, now_ms: int = 1000) -> list[bool]:
    return [bool(rules.decide(POST, now_ms).fault_ids) for _ in range(requests)]


@given(
    st.integers(0, 6),
    st.integers(1, 6) | st.none(),
    st.integers(0, 20),
    st.lists(st.booleans(), min_size=0, max_size=20),
)
def test_after_skips_requests_that_fit_and_next_ends_the_rule(
    after: int, most: int | None, seed: int, fitting: list[bool]
) -> None:
    rules = FaultRules()
    times = {"after": after} | ({} if most is None else {"next": most})
    rule = add(rules, match={"method": "POST"}, times=times)
    met = [bool(rules.decide(POST if fits else GET, seed).fault_ids) for fits in fitting]
    places = [place for place, fits in enumerate(fitting) if fits][after:][:most]
    assert [place for place, hit in enumerate(met) if hit] == places
    assert rule.hits == len(places)


@given(st.integers(0, 2**32), st.floats(0.01, 1.0), st.integers(0, 30))
def test_chance_is_repeated_by_its_seed(seed: int, probability: float, requests: int) -> None:
    both = []
    for _ in range(2):
        rules = FaultRules()
        add(rules, times={"probability": probability, "seed": seed})
        both.append(hits(rules, requests))
    assert both[0] == both[1]
    assert probability < 1 or all(both[0])


def test_chance_is_as_likely_as_it_says_and_a_seed_that_was_made_is_shown_and_repeats_it() -> None:
    rules = FaultRules()
    rule = add(rules, times={"probability": 0.3})
    met = hits(rules, 5000)
    assert 0.25 < sum(met) / 5000 < 0.35
    again = FaultRules()
    add(again, times=rule.show()["times"])
    assert hits(again, 5000) == met


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 30), st.integers(1, 30))
def test_a_period_is_one_of_the_services_clock_its_end_not_in_it(seconds: list[int], begin: int, lasts: int) -> None:
    rules = FaultRules()
    add(rules, now_ms=0, times={"from": begin * 1000, "until": (begin + lasts) * 1000})
    assert [bool(rules.decide(POST, at * 1000).fault_ids) for at in seconds] == [
        begin <= at < begin + lasts for at in seconds
    ]


@pytest.mark.parametrize("times", [{"until": 1000}, {"until": "1970-01-01T00:00:01Z"}, {"from": 5000, "until": 5000}])
def test_a_period_that_never_comes_is_refused(times: dict[str, Any]) -> None:
    rules = FaultRules()
    with pytest.raises(Invalid, match="times.until: is not after"):
        add(rules, times=times)
    assert rules.all() == []


_RULE = st.sampled_from(
    [{"latency": {"fixed_s": 1}}, {"latency": {"fixed_s": 2, "of": "request"}}, LOSE, {"drip": {"bytes_per_s": 5}}]
)


@given(st.lists(st.tuples(_RULE, st.sampled_from(["GET", "POST", None])), max_size=8))
def test_latencies_add_up_until_the_first_other_effect_and_no_rule_after_it_is_asked(
    wanted: list[tuple[dict[str, Any], str | None]],
) -> None:
    rules = FaultRules()
    made = [add(rules, effect=effect, match={"method": method} if method else {}) for effect, method in wanted]
    decision = rules.decide(POST, 1000)
    asked = []
    for rule, (effect, method) in zip(made, wanted, strict=True):
        if method != "GET":
            asked.append((rule, effect))
            if "latency" not in effect:
                break
    assert decision.fault_ids == tuple(rule.fault_id for rule, _ in asked)
    assert decision.answer_s == sum(1 for _, effect in asked if effect == {"latency": {"fixed_s": 1}})
    assert decision.request_s == sum(2 for _, effect in asked if "latency" in effect) - 2 * decision.answer_s
    last = asked[-1][1] if asked else {"latency": None}
    assert (decision.effect is not None) is ("latency" not in last)
    assert [rule.matched for rule in made] == [int(rule in [one for one, _ in asked]) for rule in made]


def test_a_rule_that_is_used_up_lets_the_next_ones_be_asked_and_is_still_shown() -> None:
    rules = FaultRules()
    first = add(rules, times={"next": 1})
    second = add(rules, effect={"reset": "answer"})
    assert [rules.decide(POST, 1000).fault_ids for _ in range(3)] == [("f1",), ("f2",), ("f2",)]
    assert [(rule.matched, rule.hits) for rule in (first, second)] == [(1, 1), (2, 2)]
    assert rules.live == (second,)
    assert rules.all() == [first, second]


@pytest.mark.parametrize("effect", [{"truncate": {}}, {"malformed_json": True}])
def test_an_effect_on_the_body_leaves_head_requests_alone(effect: dict[str, Any]) -> None:
    rules = FaultRules()
    rule = add(rules, effect=effect)
    assert rules.decide(HEAD, 1000).fault_ids == ()
    assert (rule.matched, rule.hits) == (0, 0)


@given(st.integers(0, 2**32), st.floats(0, 600), st.floats(0, 600), st.floats(0, 5))
def test_what_is_drawn_lies_in_its_bounds(seed: int, one: float, other: float, sigma: float) -> None:
    low, high = sorted((one, other))
    for latency, bounds in (
        ({"min_s": low, "max_s": high}, (low, high)),
        ({"median_s": one, "sigma": sigma}, (0, HELD_MAX_S)),
        ({"fixed_s": one}, (one, one)),
    ):
        rules = FaultRules()
        add(rules, effect={"latency": latency}, times={"seed": seed} if "fixed_s" not in latency else {})
        assert bounds[0] <= rules.decide(POST, 1000).answer_s <= bounds[1]


def test_half_of_what_is_drawn_log_normally_lies_below_the_median() -> None:
    rules = FaultRules()
    add(rules, effect={"latency": {"median_s": 0.2, "sigma": 0.5}}, times={"seed": 1})
    waits = [rules.decide(POST, 1000).answer_s for _ in range(2000)]
    assert 0.47 < sum(wait < 0.2 for wait in waits) / 2000 < 0.53
    assert 0.10 < sum(wait > 0.2 * 1.65 for wait in waits) / 2000 < 0.22


def test_there_is_room_for_so_many_rules_and_deleting_one_makes_some() -> None:
    rules = FaultRules()
    for _ in range(RULES_MAX):
        add(rules)
    with pytest.raises(Conflict, match="fault_limit_reached"):
        add(rules)
    rules.remove("f1")
    assert add(rules).fault_id == f"f{RULES_MAX + 1}"
    with pytest.raises(NotFound, match="fault_not_found"):
        rules.remove("f1")
    rules.clear()
    assert rules.live == ()
    assert add(rules).fault_id == f"f{RULES_MAX + 2}"


def test_an_account_that_is_reset_takes_the_rules_that_name_it_along() -> None:
    rules = FaultRules()
    wanted = NewFault.model_validate({"effect": LOSE, "match": {"account_id": "a"}})
    rules.add(wanted, Matcher(wanted.match, account=4), 0)
    rules.add(wanted, Matcher(wanted.match, account=5), 0)
    add(rules)
    rules.clear(account=4)
    assert [rule.fault_id for rule in rules.all()] == ["f2", "f3"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "effect"),
        ({"effect": {}}, "effect"),
        ({"effect": {"lose": "answer", "reset": "answer"}}, "effect"),
        ({"effect": {"lose": "both"}}, "effect.lose"),
        ({"effect": {"explode": True}}, "effect.explode"),
        ({"effect": {"latency": {"fixed_s": -0.1}}}, "effect.latency.fixed_s"),
        ({"effect": {"latency": {"fixed_s": 601}}}, "effect.latency.fixed_s"),
        ({"effect": {"latency": {}}}, "effect.latency"),
        ({"effect": {"latency": {"fixed_s": 1, "min_s": 1, "max_s": 2}}}, "effect.latency"),
        ({"effect": {"latency": {"min_s": 2, "max_s": 1}}}, "effect.latency"),
        ({"effect": {"latency": {"median_s": 1}}}, "effect.latency"),
        ({"effect": {"answer": {}}}, "effect.answer.status"),
        ({"effect": {"answer": {"status": 101}}}, "effect.answer.status"),
        ({"effect": {"answer": {"status": 204, "body": "x"}}}, "effect.answer"),
        ({"effect": {"answer": {"status": 200, "headers": {"Content-Length": "3"}}}}, "effect.answer.headers"),
        ({"effect": {"answer": {"status": 200, "headers": {"A": "b\r\nC: d"}}}}, "effect.answer.headers.A"),
        ({"effect": {"answer": {"status": 429, "retry_after_as": "date"}}}, "effect.answer"),
        ({"effect": {"answer": {"status": 429, "retry_after_s": 1, "headers": {"Retry-After": "2"}}}}, "effect.answer"),
        ({"effect": {"truncate": {"end": "never"}}}, "effect.truncate.end"),
        ({"effect": {"malformed_json": False}}, "effect.malformed_json"),
        ({"effect": {"drip": {"bytes_per_s": 0}}}, "effect.drip.bytes_per_s"),
        ({"effect": {"date": {"offset_s": 1, "value": "x"}}}, "effect.date"),
        ({"effect": {"date": {"offset_s": 0}}}, "effect.date"),
        ({"effect": LOSE, "times": {"next": 0}}, "times.next"),
        ({"effect": LOSE, "times": {"after": -1}}, "times.after"),
        ({"effect": LOSE, "times": {"probability": 0}}, "times.probability"),
        ({"effect": LOSE, "times": {"probability": 1.1}}, "times.probability"),
        ({"effect": LOSE, "times": {"from": "noon"}}, "times.from"),
        ({"effect": LOSE, "times": {"from_": 1}}, "times.from_"),
        ({"effect": LOSE, "match": {"device": "d"}}, "match.device"),
    ],
)
def test_what_a_rule_gets_wrong_is_named_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        NewFault.model_validate(body)
    assert [name for name, _ in list_faults(caught.value)] == [field]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"effect": LOSE, "times": {"seed": 1}}, "times.seed"),
        ({"effect": {"latency": {"fixed_s": 1}}, "times": {"seed": 1}}, "times.seed"),
        ({"effect": {"truncate": {}}, "match": {"method": "head"}}, "effect.truncate"),
        ({"effect": {"malformed_json": True}, "match": {"method": "HEAD"}}, "effect.malformed_json"),
        ({"effect": {"latency": {"min_s": 1, "max_s": 2}}, "times": {"seed": 1}}, None),
        ({"effect": LOSE, "times": {"seed": 1, "probability": 0.5}}, None),
    ],
)
def test_members_that_would_have_no_effect_are_refused(body: dict[str, Any], field: str | None) -> None:
    assert [name for name, _ in find_contradictions(NewFault.model_validate(body))] == ([field] if field else [])
