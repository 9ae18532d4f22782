"""What a body of ``POST /_emulator/labels`` may say."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from agent.wire.base import Sent, Text

COUNT_MAX: Final = 1000
"""Labels of one request."""
EDGE_DOTS_MAX: Final = 6000
"""Of one code, in printer dots: a picture of it has the square of that."""
_MM_PER_INCH: Final = 25.4
PREVIEW_LABELS: Final = 12
"""Labels that a preview shows."""

Output = Literal["preview", "sheet", "zip"]
Format = Literal["png", "svg", "pdf", "zpl"]
_Identifier = Annotated[str, Field(min_length=1, max_length=512)]


class LabelOrder(Sent):
    """Labels that are to be made. Members are called as the options of ``fleet-simulator labels make``."""

    product_id: Annotated[Text, Field(description="A product of any account.")]
    count: Annotated[int, Field(description=f"1 to {COUNT_MAX:,}; as many as there are identifiers.")] = 1
    identifiers: Annotated[
        list[_Identifier] | None,
        Field(description="Exactly these device identifiers, instead of template and count.", max_length=COUNT_MAX),
    ] = None
    template: Annotated[Text, Field(description="Makes the identifiers.")] = "SIM-{serial:06d}"
    first_serial: Annotated[int, Field(description="The first label's serial, 0 or more.")] = 1
    profile: Annotated[Text, Field(description="json, link or compact.")] = "json"
    link_host: Annotated[str, Field(description="Where labels of the profile link lead.")] = ""
    signed: Annotated[
        bool | None,
        Field(description="By the product's secret label_key; left out, where it has one."),
    ] = None
    size_mm: Annotated[float | None, Field(description="A code's longest edge, quiet zone counted; 25.")] = None
    dpi: Annotated[int, Field(description="The printer's dots per inch.")] = 300
    paper: Annotated[Text, Field(description="Of the sheet: a4 or letter.")] = "a4"
    output: Annotated[
        Output, Field(description="preview: JSON with the first drawings; sheet: a PDF; zip: all formats.")
    ] = "preview"
    formats: Annotated[
        tuple[Format, ...],
        Field(description="What a zip holds, beside the manifest.", min_length=1, max_length=4, strict=False),
    ] = ("png", "svg", "pdf")


def faults_of(order: LabelOrder) -> list[tuple[str, str]]:
    """(member, what to write instead) for what a schema cannot say."""
    faults: list[tuple[str, str]] = []
    if order.identifiers is None and not 1 <= order.count <= COUNT_MAX:
        command = f"make --product-id {order.product_id[:80]} --count {order.count}"
        more = f"; for more run 'fleet-simulator labels {command}'" if order.count > COUNT_MAX else ""
        faults.append(("count", f"is {order.count:,}; give 1 to {COUNT_MAX:,}{more}"))
    if order.identifiers is not None:
        if not order.identifiers:
            faults.append(("identifiers", "is empty; give one or more, or leave it out and give count"))
        elif len(set(order.identifiers)) < len(order.identifiers):
            faults.append(("identifiers", "names one twice; each device has an identifier of its own"))
    if not 0 <= order.first_serial < 10**15:
        faults.append(("first_serial", f"is {order.first_serial}; give 0 or more, up to 15 digits"))
    dots = (order.size_mm or 0) / _MM_PER_INCH * order.dpi
    if dots > EDGE_DOTS_MAX:
        faults.append(
            ("size_mm", f"and dpi make {dots:,.0f} dots on an edge; give less of one, up to {EDGE_DOTS_MAX:,}")
        )
    return faults
