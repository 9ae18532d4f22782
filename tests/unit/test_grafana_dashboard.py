"""The dashboard of a fleet is one that Grafana knows: its own classes read it, and write it again without a loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

DASHBOARD: Final = Path(__file__).parents[2] / "configs" / "grafana" / "fleet.json"
OF_PROMETHEUS: Final = {"step", "titleFormat", "textFormat"}
"""What the data source adds to an annotation; the schema leaves that open."""


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def losses(given: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where something of the one is not, or not the same, in the other."""
    if isinstance(given, dict) and isinstance(found, dict):
        for key, value in given.items():
            yield from losses(value, found[key], f"{path}/{key}") if key in found else [f"{path}/{key}"]
    elif isinstance(given, list) and isinstance(found, list) and len(given) == len(found):
        for number, pair in enumerate(zip(given, found, strict=True)):
            yield from losses(*pair, f"{path}/{number}")
    elif given != found:
        yield path


def understood(given: dict[str, Any]) -> Any:
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(given)))


def test_grafanas_own_classes_know_every_member_of_the_dashboard():
    given = document()
    lost = [path for path in losses(given, understood(given)) if not path.startswith("/annotations/")]
    assert lost == []
    annotations = {path.rpartition("/")[2] for path in losses(given, understood(given))}
    assert annotations <= OF_PROMETHEUS


def test_they_do_find_a_member_that_is_none():
    given = document()
    panel = next(panel for panel in given["panels"] if panel["type"] == "timeseries")
    panel["fieldConfig"]["defaults"]["custom"]["lineWidht"] = 2
    panel["targets"][0]["legendFromat"] = "p50"
    found = list(losses(given, understood(given)))
    assert [path.rpartition("/")[2] for path in found if "panels" in path] == ["lineWidht", "legendFromat"]


def test_panels_have_numbers_of_their_own_and_do_not_lie_on_each_other():
    panels = document()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)

    def covers(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        return {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}

    for one, other in combinations(panels, 2):
        assert not covers(one) & covers(other), (one.get("title"), other.get("title"))


def test_every_panel_and_annotation_asks_the_data_source_that_the_reader_chooses():
    dashboard = document()
    asking = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    asking += [target for panel in asking for target in panel["targets"]] + dashboard["annotations"]["list"]
    assert {each["datasource"]["uid"] for each in asking} == {"${datasource}"}
    assert "datasource" in {each["name"] for each in dashboard["templating"]["list"]}
    assert all(panel["description"] for panel in dashboard["panels"] if panel["type"] != "row")
