"""An effect as one word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.service.errors import Invalid
from simulator.service.faults.model import EFFECTS
from simulator.service.faults.short_form import read_effect


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("lose=answer", {"lose": "answer"}),
        (" reset=request ", {"reset": "request"}),
        ("latency=1.5", {"latency": {"fixed_s": 1.5, "of": "answer"}}),
        ("latency:min_s=1,max_s=3,of=request", {"latency": {"min_s": 1, "max_s": 3, "of": "request"}}),
        ("latency: median_s = 0.2, sigma = 1", {"latency": {"median_s": 0.2, "sigma": 1, "of": "answer"}}),
        ("answer=503", {"answer": {"status": 503, "headers": {}}}),
        (
            "answer:status=429,retry_after_s=30,retry_after_as=date",
            {"answer": {"status": 429, "headers": {}, "retry_after_s": 30, "retry_after_as": "date"}},
        ),
        ("answer:status=200,body=a=b: c", {"answer": {"status": 200, "headers": {}, "body": "a=b: c"}}),
        ("truncate", {"truncate": {"end": "close"}}),
        ("truncate=7", {"truncate": {"after_bytes": 7, "end": "close"}}),
        ("truncate:end=reset", {"truncate": {"end": "reset"}}),
        ("malformed_json", {"malformed_json": True}),
        ("content_type=text/html; charset=utf-8", {"content_type": "text/html; charset=utf-8"}),
        ("captive_portal", {"captive_portal": {"status": 200}}),
        ("captive_portal=302", {"captive_portal": {"status": 302}}),
        ("drip=20", {"drip": {"bytes_per_s": 20}}),
        ("date=-3600", {"date": {"offset_s": -3600}}),
        ("date:value=yesterday", {"date": {"value": "yesterday"}}),
        ('{"latency": 0.5}', {"latency": {"fixed_s": 0.5, "of": "answer"}}),
        ('{"date": {"value": "Thu, 01 Jan 1970 00:00:00 GMT"}}', {"date": {"value": "Thu, 01 Jan 1970 00:00:00 GMT"}}),
    ],
)
def test_each_form_is_an_effect(text: str, effect: dict[str, Any]) -> None:
    assert read_effect(text, "F").to_wire() == effect


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("", "F: '' is no effect"),
        ("loose=answer", "did you mean 'lose'?"),
        ("lose", "lose needs a value: lose=request"),
        ("drip", "drip needs a value"),
        ("lose=both", "F: lose:"),
        ("latency=-1", "F: latency.fixed_s:"),
        ("latency=soon", "F: latency.fixed_s:"),
        ("latency:min_s=1", "give fixed_s; or min_s and max_s; or median_s and sigma"),
        ("latency:min_s=1,min_s=2", "each member once"),
        ("latency:min_s", "must be member=value"),
        ("answer:status=503,colour=red", "F: answer.colour: unknown member; known are status, headers, body"),
        ("malformed_json=no", "F: malformed_json:"),
        ('{"lose": "answer", "reset": "answer"}', "gives 2 effects"),
        ('{"lose": ', "F: "),
        ('{"latencie": 1}', "F: latencie: unknown member; did you mean 'latency'?"),
        ("{}", "give one effect"),
        ("[]", "is no effect"),
    ],
)
def test_what_is_none_is_refused_by_name(text: str, issue: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_effect(text, "F")
    assert issue in str(caught.value)


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("value", [503, 200, 0.5, 400, -60, True, False, "answer"])
def test_a_value_means_the_same_in_a_header_and_in_json(name: str, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    assert _read(f"{name}={text}") == _read(json.dumps({name: value}))


def _read(text: str) -> Any:
    try:
        return read_effect(text, "F").to_wire()
    except Invalid as error:
        return str(error)


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_any_text_is_an_effect_or_is_refused(text: str) -> None:
    try:
        effect = read_effect(text, "F")
    except Invalid:
        return
    assert effect.to_wire()
