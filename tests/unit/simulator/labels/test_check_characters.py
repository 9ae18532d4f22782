from __future__ import annotations

import random

import pytest

from simulator.labels.errors import LabelError
from simulator.labels.payload import IdentifierTemplate
from simulator.labels.payload.identifiers import ALGORITHMS, check_character

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def test_iso_7064_mod_37_36_is_the_published_example():
    # The Global Release Identifier's example, whose check character is ISO 7064 MOD 37,36.
    assert check_character("A1-2425G-ABC1234002") == "M"


def test_luhn_and_damm_are_the_published_examples():
    assert check_character("572", "damm") == "4"
    assert check_character("7", "luhn") == "M"  # 14 is 14, and 14 + 22 is a multiple of 36


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_single_wrong_character_is_noticed(algorithm):
    alphabet = LETTERS[:10] if algorithm == "damm" else LETTERS
    pick = random.Random(algorithm)
    for _ in range(20):
        text = "".join(pick.choices(alphabet, k=9))
        for place in range(len(text)):
            for other in alphabet.replace(text[place], ""):
                wrong = text[:place] + other + text[place + 1 :]
                assert check_character(wrong, algorithm) != check_character(text, algorithm)


@pytest.mark.parametrize(("algorithm", "share"), [("iso7064", 0.99), ("luhn", 0.98), ("damm", 1.0)])
def test_swapped_neighbours_are_noticed(algorithm, share):
    alphabet = LETTERS[:10] if algorithm == "damm" else LETTERS
    pick = random.Random(algorithm)
    noticed, swaps = 0, 0
    for _ in range(2000):
        text = "".join(pick.choices(alphabet, k=9))
        at = pick.randrange(8)
        swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        if swapped != text:
            swaps += 1
            noticed += check_character(swapped, algorithm) != check_character(text, algorithm)
    assert noticed / swaps >= share


def test_case_and_what_stands_between_do_not_count():
    assert check_character("ab-12.c") == check_character("AB12C")


def test_a_template_puts_the_check_character_where_it_is_asked_for():
    assert IdentifierTemplate("A1-2425G-ABC{serial:07d}-{check}").identifier(1234002) == "A1-2425G-ABC1234002-M"
    assert IdentifierTemplate("{serial}{check:damm}").identifier(572) == "5724"
    assert IdentifierTemplate("{{x}}{serial}{check:luhn}").identifier(7).startswith("{x}7")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{check}{serial}", "behind it"),
        ("{serial}{check}{check}", "once"),
        ("{serial}{check!r}", "only"),
        ("{serial}{check:crc}", "no check character 'crc': there is iso7064, luhn, damm"),
    ],
)
def test_a_check_character_in_the_wrong_place_is_refused(pattern, words):
    with pytest.raises(LabelError, match=words):
        IdentifierTemplate(pattern)


def test_damm_with_letters_is_refused_with_the_others():
    with pytest.raises(LabelError, match="digits only: use iso7064 or luhn"):
        IdentifierTemplate("AB{serial}{check:damm}").identifier(1)
