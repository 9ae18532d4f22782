"""Decoders beside the panel, which say of labels that must fail whether anybody reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from simulator.labels import LabelError, make_labels
from simulator.labels.damage import making
from simulator.labels.damage.making import damage_labels
from simulator.labels.symbol import extra_decoders
from simulator.labels.symbol.decoders import GrayImage, NoAnswer, Zxing, find_opencv, find_zbar, title
from simulator.labels.symbol.extra_decoders import JsQr, find_wechat, make_extra, missing_extra
from simulator.labels.symbol.pictures import load_picture
from tests.conftest import require_program
from tests.node_packages import node_with

JSQR = Path(__file__).parents[3] / "e2e" / "label_decoders"
KINDS = ("blur", "contrast")


@dataclass
class Reads:
    """A decoder that reads each picture, or fails at each."""

    name: str = "reads"
    title: str = "Reads 7.1"
    failure: Exception | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read(self, image):
        self.asked.append((image.width, image.height))
        if self.failure:
            raise self.failure
        return (b"anything",)


@pytest.fixture(name="label", scope="module")
def _label(tmp_path_factory):
    out = tmp_path_factory.mktemp("label")
    return make_labels(product_id="p-1", out=out, formats=["png"], decoders=["zxing"]).labels[0].png


@pytest.fixture(name="damaged")
def _damaged(label, tmp_path, monkeypatch):
    def damage(*found):
        monkeypatch.setattr(making, "make_extra", lambda *_: found)
        batch = damage_labels(
            [label],
            out=tmp_path / "out",
            must_fail=tmp_path / "must-fail",
            kinds=KINDS,
            severities=[1.0],
            flips=False,
            decoders=[Zxing()],
        )
        return batch, json.loads((tmp_path / "must-fail" / "manifest.json").read_text())

    return damage


def test_what_an_extra_decoder_reads_is_no_label_that_must_fail(damaged):
    _, without = damaged()
    assert {picture["kind"] for picture in without["pictures"]} == set(KINDS)
    extra = Reads()
    batch, manifest = damaged(extra)
    assert extra.asked
    assert manifest["pictures"] == []
    assert {one["kind"] for one in manifest["without"]} == set(KINDS)
    assert manifest["judged_by"] == list(batch.run.judged_by) == [title(Zxing()), "Reads 7.1"]
    assert manifest["decoders"] == ["zxing"], "an extra decoder has no column of its own"


def test_an_extra_decoder_that_fails_at_a_picture_has_not_said_that_it_does_not_read_it(damaged):
    batch, manifest = damaged(Reads(failure=RuntimeError("odd picture")))
    assert manifest["pictures"] == []
    assert {one["kind"]: one["no_answer"] for one in manifest["without"]} == {kind: ["reads"] for kind in KINDS}
    assert [finding.no_answer for finding in batch.findings] == [("reads",), ("reads",)]


def test_an_extra_decoder_that_is_gone_ends_the_run(damaged):
    with pytest.raises(LabelError, match="ended without an answer"):
        damaged(Reads(failure=LabelError("jsQR ended without an answer")))


def test_titles_say_which_version_of_which_decoder_was_asked():
    found = [title(one) for one in (Zxing(), find_zbar(), find_opencv()) if one is not None]
    assert found[0].startswith("zxing-cpp 3") or found[0].startswith("zxing-cpp 2")
    assert all(any(char.isdigit() for char in one) for one in found)
    assert title(Reads(title="")) == ""


def test_jsqr_without_its_folder_or_without_must_fail_is_refused(label, tmp_path):
    with pytest.raises(LabelError, match="run 'npm install jsqr'"):
        make_extra(tmp_path)
    with pytest.raises(LabelError, match="give --must-fail"):
        damage_labels([label], out=tmp_path / "out", jsqr=tmp_path)
    assert missing_extra(()) == (extra_decoders.WECHAT_FIX, extra_decoders.JSQR_FIX)


def blank(edge: int = 90) -> GrayImage:
    return GrayImage(edge, edge, bytes([255]) * edge * edge)


def turned_around(image: GrayImage) -> GrayImage:
    return GrayImage(image.width, image.height, (255 - np.frombuffer(image.pixels, np.uint8)).tobytes())


def test_wechat_reads_a_label_and_nothing_else(label):
    wechat = find_wechat()
    assert wechat is not None, "the extra opencv has it: pip install '.[opencv]' in a clone of device-agent"
    [read] = wechat.read(load_picture(label))
    assert json.loads(read)["device_identifier"] == "SIM-000001"
    assert wechat.read(blank()) == ()
    assert wechat.title.startswith("WeChat's detector in OpenCV ")


def test_jsqr_reads_a_label_and_nothing_else_and_ends_with_its_object(label):
    node_with(JSQR)
    jsqr = JsQr(JSQR)
    picture = load_picture(label)
    [read] = jsqr.read(picture)
    assert json.loads(read)["device_identifier"] == "SIM-000001"
    assert jsqr.read(turned_around(picture)) == (read,), "light on dark, too"
    assert jsqr.read(blank()) == ()
    assert jsqr.title == "jsQR 1.4.0"
    jsqr.close()
    with pytest.raises(LabelError, match="ended without an answer"):
        jsqr.read(picture)


def test_jsqr_has_a_limit_for_each_picture_and_goes_on_with_the_next_one(tmp_path):
    require_program("node", "nodejs")
    package = tmp_path / "node_modules" / "jsqr"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "jsqr", "version": "9.9.9", "main": "index.js"}')
    (package / "index.js").write_text(
        "module.exports = (pixels, width) => { while (width > 50) {} return {binaryData: [65, width]}; };"
    )
    jsqr = JsQr(tmp_path, answer_s=1.0)
    with pytest.raises(NoAnswer, match=r"jsQR 9\.9\.9 gave no answer within 1 s"):
        jsqr.read(blank(900))
    assert jsqr.read(blank(40)) == (b"A(",)
    jsqr.close()


def test_the_command_asks_jsqr_in_its_processes_too_and_names_who_was_asked(label, tmp_path):
    node_with(JSQR)
    batch = damage_labels(
        [label],
        out=tmp_path / "out",
        must_fail=tmp_path / "must-fail",
        kinds=["contrast"],
        severities=[1.0],
        flips=False,
        jobs=1,
        jsqr=JSQR,
    )
    assert "jsQR 1.4.0" in batch.run.judged_by
    jsqr = JsQr(JSQR)
    for picture in json.loads((tmp_path / "must-fail" / "manifest.json").read_text())["pictures"]:
        assert jsqr.read(load_picture(tmp_path / "must-fail" / picture["file"])) == ()
    jsqr.close()
