import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire.enrollment import label_text, make_code, parse_code, parse_label

CODE = make_code(bytes(range(8)), b"certificate")
TEXT = str(CODE)


def test_a_code_may_be_typed_in_any_case_with_spaces_and_with_letters_that_look_like_digits():
    typed = TEXT.lower().replace("-", " ").replace("0", "o").replace("1", "l")
    assert parse_code(typed) == CODE


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=1, max_size=40))
def test_every_code_comes_back_as_it_was(secret, certificate):
    code = make_code(secret, certificate)
    assert parse_code(str(code)) == code


def test_one_wrong_character_and_two_neighbours_that_changed_places_are_noticed():
    plain = TEXT.replace("-", "")
    wrong = {plain[:at] + other + plain[at + 1 :] for at in range(30) for other in "0123456789ABCDEFGHJKMNPQRSTVWXYZ"}
    swapped = {plain[:at] + plain[at + 1] + plain[at] + plain[at + 2 :] for at in range(29)}
    for typed in (wrong | swapped) - {plain}:
        with pytest.raises(InvalidMessage, match="mistyped"):
            parse_code(typed)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "has 0"), (TEXT[:-1], "has 29"), (TEXT + "0", "has 31"), ("U" + TEXT[1:], "'U'"), ("é" + TEXT[1:], "'É'")],
)
def test_what_is_no_code_is_refused_with_the_reason(text, why):
    with pytest.raises(InvalidMessage, match=why):
        parse_code(text)


def test_a_label_holds_address_and_code():
    text = label_text("https://gateway.example.com:8443", CODE)
    assert parse_label(text) == ("https://gateway.example.com:8443", TEXT)
    for other in (TEXT, "https://example.com", "DAE1:https://example.com"):
        with pytest.raises(InvalidMessage, match="DAE1:"):
            parse_label(other)
