"""What the commands are given: labels, credentials, folders; one clear line for what is wrong, and the quota kept."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from PIL import Image, ImageDraw

from agent.errors import ConfigurationError, RateLimited
from agent.wire.rate_limit import RateLimit
from simulator.labels import LabelError, make_labels
from simulator.onboarding.cli import onboard_group
from simulator.onboarding.folder import open_run
from simulator.onboarding.quota import QuotaGate, Timing
from simulator.onboarding.retrying import Retrier
from simulator.onboarding.sources import find_labels
from tests.conftest import require_program
from tests.onboarding_fakes import Clock

WAY = ("--base-url", "http://127.0.0.1:9", "--api-key", "mk_1")


@pytest.fixture(name="secret")
def _secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("msk_canary_88bb")
    return ["--secret-key-file", str(path)]


def run(*arguments):
    result = CliRunner().invoke(onboard_group, [str(one) for one in arguments])
    assert "Traceback" not in result.output
    assert "canary" not in result.output
    return result


def test_a_manifest_and_its_pictures_give_the_same_labels(tmp_path):
    folder = make_labels(product_id="p-1", count=3, out=tmp_path / "labels", formats=["png"]).folder
    taken, read = find_labels([folder], pictures=False), find_labels([folder], pictures=True)
    assert [one.text for one in taken.subjects] == [one.text for one in read.subjects]
    assert taken.digest == read.digest
    assert find_labels([folder / "manifest.json", folder], pictures=False).copies == 3


@pytest.fixture(name="batch", scope="module")
def _batch(tmp_path_factory):
    return make_labels(product_id="p-1", count=7, out=tmp_path_factory.mktemp("seven"), formats=["png", "pdf"])


def pictures_of(batch):
    return [Image.open(label.png).convert("L") for label in batch.labels]


def side_by_side(pictures, per_row=3):
    """One picture of several labels, as a photograph of a sheet shows them."""
    width, height = pictures[0].size
    sheet = Image.new("L", (width * per_row, height * -(-len(pictures) // per_row)), 255)
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (number % per_row * width, number // per_row * height))
    return sheet


def test_a_photograph_of_a_sheet_gives_each_of_its_labels_with_its_place(batch, tmp_path):
    side_by_side(pictures_of(batch)).rotate(3, expand=True, fillcolor=255).save(tmp_path / "photo.jpg", quality=80)
    found = find_labels([tmp_path / "photo.jpg"], pictures=True)
    assert sorted(one.text for one in found.subjects) == sorted(label.text for label in batch.labels)
    assert not found.unread
    places = {one.source for one in found.subjects}
    assert len(places) == 7
    assert all(re.fullmatch(r".*photo\.jpg at \d+,\d+", place) for place in places)


def test_labels_of_a_picture_come_in_the_order_in_which_people_read(batch, tmp_path):
    side_by_side(pictures_of(batch)).save(tmp_path / "sheet.png")
    found = find_labels([tmp_path], pictures=True)
    assert [one.device_identifier for one in found.subjects] == [label.identifier for label in batch.labels]


def test_a_pdf_and_a_scan_of_several_pages_give_the_labels_of_every_page(batch, tmp_path):
    one, two = side_by_side(pictures_of(batch)[:4]), side_by_side(pictures_of(batch)[4:])
    one.save(tmp_path / "scan.tiff", save_all=True, append_images=[two])
    found = find_labels([tmp_path / "scan.tiff"], pictures=True)
    assert {label.text for label in batch.labels} == {one.text for one in found.subjects}
    assert "scan.tiff page 2 at " in found.subjects[-1].source
    require_program("pdftoppm", "poppler-utils")
    found = find_labels([batch.sheet, tmp_path / "scan.tiff"], pictures=True)
    assert {label.text for label in batch.labels} == {one.text for one in found.subjects}
    assert found.copies == 7


def test_a_code_that_is_seen_and_not_read_is_no_label_and_no_silence(batch, tmp_path):
    pictures = pictures_of(batch)[:3]
    width, height = pictures[1].size
    ImageDraw.Draw(pictures[1]).rectangle((width * 0.45, height * 0.3, width * 0.85, height * 0.85), fill=0)
    side_by_side(pictures).save(tmp_path / "scratched.png")
    found = find_labels([tmp_path / "scratched.png"], pictures=True)
    assert [one.device_identifier for one in found.subjects] == ["SIM-000001", "SIM-000003"]
    assert [re.sub(r"\d+,\d+", "X,Y", one.problem) for one in found.unread] == [
        f"{tmp_path}/scratched.png at X,Y: a code was seen and not read; take the picture nearer or sharper"
    ]


def test_without_poppler_a_pdf_is_refused_with_the_commands_that_make_it_usable(batch, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (refused,) = find_labels([batch.sheet], pictures=True).unread
    assert "apt-get install poppler-utils" in refused.problem
    assert "pdftoppm -r 300 -png sheet.pdf page" in refused.problem


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "no manifest of labels"),
        ('{"format": "device-agent/labels/1", "labels": []}', "names no label"),
        ('{"format": "device-agent/labels/1", "labels": [{"text": "x"}]}', "label 1: it lacks text, product_id"),
        ('{"format": "device-agent/labels/1", "labels": [7]}', "label 1"),
    ],
)
def test_a_manifest_that_is_none_is_refused_with_its_place(tmp_path, text, complaint):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LabelError, match=complaint):
        find_labels([tmp_path], pictures=False)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["cases", "--base-url", "http://127.0.0.1:9"], "give --api-key and --secret-key-file, or --token-file"),
        (["cases", *WAY], "--secret-key-file is missing"),
        (["cases", "--api-key", "mk_1", "SECRET"], "--base-url is missing"),
        (["cases", *WAY, "SECRET", "--token-file", "x"], "or --token-file"),
        (["cases", "--token-file", "/nowhere/token.json"], "sign in: fleet-simulator login --out /nowhere/token.json"),
        (["cases", *WAY, "SECRET", "--only", "no_such"], "--list prints them all"),
        (["cases", *WAY, "SECRET", "--other-api-key", "mk_2"], "--other-secret-key-file is missing"),
        (["cleanup", *WAY, "SECRET"], "give the folder or journal of a run, or --marked"),
        (["cleanup", "x", *WAY, "SECRET", "--run", "1"], "--run goes with --marked"),
        (["cleanup", "/nowhere", *WAY, "SECRET"], "/nowhere cannot be read"),
        (
            ["campaign", "/nowhere", *WAY, "SECRET", "--user-id", "u", "--out", "o"],
            "give pictures, PDF documents, or folders",
        ),
        (["campaign", "/nowhere", *WAY, "SECRET", "--user-id", " ", "--out", "o"], "--user-id is empty"),
    ],
)
def test_wrong_use_ends_with_code_2_and_one_line_that_names_the_fix(secret, arguments, fix):
    filled = [part for each in arguments for part in (secret if each == "SECRET" else [each])]
    result = run(*filled)
    assert result.exit_code == 2, result.output
    assert fix in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_service_that_is_down_ends_with_code_5(secret):
    result = run("cases", "--base-url", "http://127.0.0.1:1", "--api-key", "mk_1", *secret)
    assert result.exit_code == 5
    assert "check that the service runs" in result.stderr


def test_the_list_of_cases_asks_no_service():
    result = run("cases", "--list", "--only", "race_*")
    assert result.exit_code == 0
    assert "race_two_users\n  Two users register in parallel: one of them gets it." in result.stdout


def test_where_no_product_can_be_made_the_fix_is_named_and_an_existing_one_will_do(account, way, tmp_path):
    product_id = account.product()
    account.fault("POST", "/products", answer={"status": 403, "body": {"error": "insufficient_scope"}})
    result = run("cases", *way, "--only", "r*e")
    assert result.exit_code == 2
    assert "--product-id names one" in result.stderr
    result = run("cases", *way, "--only", "r*e", "--product-id", product_id, "--out", tmp_path / "out", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert report["failed"] == 0
    assert report["counts"]["passed"] + report["allowed"] >= 3


def test_a_wrong_server_fails_with_code_1_and_the_report_says_where(account, way, tmp_path):
    account.fault("GET", "/onboarding/user/{user_id}/devices", answer={"status": 200, "body": []})
    result = run("cases", *way, "--only", "round_trip", "--out", tmp_path / "out")
    assert list(account.client.devices()) == []
    assert result.exit_code == 1
    assert "round_trip" in result.stdout
    assert "answered device not listed" in result.stdout


def test_a_folder_whose_run_left_something_is_not_begun_anew(tmp_path):
    with open_run(tmp_path, {"kind": "cases"}, resumable=False) as run_:
        run_.journal.add("created", account="", name="n", product_id="p")
    with (
        pytest.raises(ConfigurationError, match="onboard cleanup"),
        open_run(tmp_path, {"kind": "cases"}, resumable=False),
    ):
        pass
    with open_run(tmp_path, {"kind": "cases"}, resumable=True) as resumed:
        assert resumed.run == run_.run
        resumed.journal.add("deleted", account="", product_id="p")
        resumed.journal.add("cleaned")
    with open_run(tmp_path, {"kind": "cases"}, resumable=True) as fresh:
        assert fresh.run != run_.run
        assert fresh.journal.entries == []


def gate(max_wait_s=100.0):
    clock = Clock()
    return QuotaGate(Timing(clock, clock.sleep, max_wait_s)), clock


def test_nobody_asks_beyond_what_the_headers_say_is_left():
    quota, clock = gate()
    quota.observe(RateLimit(remaining=2, reset_s=30.0))
    assert [quota.enter(), quota.enter()] == [0.0, 0.0]
    quota.observe(RateLimit(remaining=5, reset_s=31.0))  # an older answer that comes late is not believed
    assert quota.enter() == pytest.approx(30.0)
    assert clock.now == pytest.approx(1030.0)


def test_a_wait_that_is_too_long_is_not_begun():
    quota, clock = gate(max_wait_s=10.0)
    quota.refused(11.0)
    assert quota.enter() is None
    assert clock.now == 1000.0
    retrier = Retrier(quota, Timing(clock, clock.sleep, 10.0))
    with pytest.raises(RateLimited):
        retrier.call(lambda: None)
