"""Labels that must fail, as far as they must: damaged pictures, and bad payloads."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.cli import program
from simulator.labels.corpus import Setting, made_up_signer, read_corpus
from simulator.labels.damage import KINDS, STRENGTHS, damage_labels
from simulator.labels.errors import LabelError
from simulator.labels.make import make_labels
from simulator.labels.pictures import load_picture
from simulator.labels.reading import read_codes


@pytest.fixture(name="batch", scope="module")
def _batch(tmp_path_factory):
    out = tmp_path_factory.mktemp("labels")
    return make_labels(product_id="01998f3a-1c9f-7cc3-9d2b-1a2b3c4d5e6f", count=4, out=out, formats=["png"])


def _run(*arguments):
    return CliRunner().invoke(program, ["labels", *map(str, arguments)])


def test_the_weakest_damage_is_read_and_the_strongest_of_most_kinds_is_not(batch, tmp_path):
    result = _run("damage", batch.folder, "--out", tmp_path, "--json")
    assert result.exit_code == 0
    made = json.loads(result.stdout)["labels"]
    assert len(made) == 4 * len(KINDS) * len(STRENGTHS)
    assert len(KINDS) == 10
    read = Counter((one["kind"], one["strength"]) for one in made if one["zxing"] == "read")
    assert all(read[kind, 1] >= 3 for kind in KINDS), read
    assert sum(read[kind, 5] == 0 for kind in KINDS) >= 7, read
    assert not [one for one in made if one["zxing"] == "different"]
    for one in made[::17]:
        assert (read_codes((tmp_path / one["picture"]).read_bytes()) == [one["text"]]) or one["zxing"] == "missed"
    assert json.loads((tmp_path / "damage.json").read_text())["labels"] == made


def test_equal_seeds_give_equal_pixels_and_each_kind_and_strength_changes_some(batch, tmp_path):
    label = batch.labels[0].png
    first = damage_labels([label], tmp_path / "a", seed=7)
    again = damage_labels([label], tmp_path / "b", seed=7)
    other = damage_labels([label], tmp_path / "c", seed=8, kinds=["noise"])
    assert first == again
    seen = {load_picture(label).tobytes()}
    for one in first:
        pixels = load_picture(tmp_path / "a" / one.picture).tobytes()
        assert pixels == load_picture(tmp_path / "b" / one.picture).tobytes()
        assert pixels not in seen, one
        seen.add(pixels)
    assert load_picture(tmp_path / "c" / other[0].picture).tobytes() not in seen


def test_what_shows_no_label_and_kinds_that_there_are_not_are_refused(batch, tmp_path):
    Image.new("L", (200, 200), 255).save(tmp_path / "empty.png")
    for pictures, options, words in (
        (tmp_path / "empty.png", [], "no QR codes"),
        (batch.folder, ["--kinds", "blur,fire"], "no damage 'fire'"),
        (tmp_path / "nowhere", [], "does not exist"),
    ):
        refused = _run("damage", pictures, "--out", tmp_path / "out", *options)
        assert refused.exit_code == 2
        assert words in refused.stderr
    (tmp_path / "file").write_text("")
    with pytest.raises(LabelError, match="another --out"):
        damage_labels([batch.folder], tmp_path / "file")


SETTING = Setting("01998f3a-1c9f-7cc3-9d2b-1a2b3c4d5e6f", "01998f3a-1c9f-7cc3-9d2b-1a2b3c4d5e70", made_up_signer())


def test_the_corpus_has_about_two_hundred_entries_each_with_a_name_of_its_own():
    entries = read_corpus(SETTING)
    assert 200 <= len(entries) <= 260
    assert len({entry.id for entry in entries}) == len(entries)
    assert len({entry.body for entry in entries}) == len(entries)
    assert sum(entry.is_good for entry in entries) >= 25
    assert {len(entry.payload) for entry in entries if entry.status == 413} == {4097, 65536}


def test_the_corpus_is_written_as_pictures_that_say_exactly_the_payload(tmp_path):
    result = _run("corpus", "--out", tmp_path / "out", "--json")
    document = json.loads((tmp_path / "out" / "corpus.json").read_text())
    drawn = [entry for entry in document["entries"] if "png" in entry]
    assert json.loads(result.stdout)["pictures"] == len(drawn) >= 200
    for entry in drawn[::9]:
        payload = json.loads(entry["request_body"].encode("latin-1"))["qr_data"]
        assert read_codes((tmp_path / "out" / entry["png"]).read_bytes()) == [payload]
    assert _run("corpus", "--out", tmp_path / "out").exit_code == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert "something else" in _run("corpus", "--out", tmp_path / "other").stderr
