"""The rows of a cluster's machines in the picture of a run; how they give way is that of its other lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from simulator.fleet.report.node_text import NODE_COLUMNS, live_cells
from simulator.fleet.report.run_status import NodeStatus

_ROWS_ALWAYS: Final = 6
_HEAD, _LOST, _FIRST, _FURTHER = 3, 2, 3, 6


def node_lines(nodes: Sequence[NodeStatus]) -> list[tuple[int, Text]]:
    """A row for each machine with its rank; one that has lost workers gives way last.

    Args:
        nodes: the machines; none for a run on this one alone, and no line then.
    """
    if not nodes:
        return []
    rows = [("machine", *NODE_COLUMNS), *((node.name, *live_cells(node)) for node in nodes)]
    # As narrow as the cells: the state is last, and a terminal has 80.
    first = max(len(row[0]) for row in rows)
    widths = [max(len(row[at]) for row in rows) + 2 for at in range(1, len(NODE_COLUMNS))]
    head, *texts = (
        f"{row[0]:<{first}}"
        + "".join(f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths, strict=True))
        + f"  {row[-1]}"
        for row in rows
    )
    lines = [(_HEAD, Text(head, "dim"))]
    for at, (node, text) in enumerate(zip(nodes, texts, strict=True)):
        rank = _FIRST if at < _ROWS_ALWAYS else _FURTHER
        lines.append((_LOST, Text(text, "bold red")) if node.lost else (rank, Text(text)))
    return lines
