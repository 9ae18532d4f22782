"""The machines of a cluster as a person reads them, in the terminal, on the page and in the live view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simulator.fleet.record import NodeRecord, RunRecord
from simulator.fleet.report.formatting import DASH, clock_text, count_text, short_count, time_text
from simulator.fleet.report.run_status import NodeStatus

NODE_COLUMNS: Final = ("workers", "devices", "sent/s", "lag p99", "CPU", "state")
"""Of a machine, beside its name."""
_RUNNING: Final = "running"
_ENDED: Final = "came to its end"


def workers_text(first: int, workers: int) -> str:
    """How many workers a machine has and their numbers: ``1 (number 0)``, ``2 (0 to 1)``."""
    numbers = f"number {first}" if workers == 1 else f"{first} to {first + workers - 1}"
    return f"{workers} ({numbers})"


def live_cells(node: NodeStatus) -> tuple[str, ...]:
    """The cells of :data:`NODE_COLUMNS` while the run goes on: figures of the latest second."""
    if node.gone_s is not None:
        return (
            workers_text(node.first, node.workers),
            count_text(node.devices),
            DASH,
            DASH,
            DASH,
            node_state(node, _RUNNING),
        )
    return (
        workers_text(node.first, node.workers),
        count_text(node.devices),
        short_count(node.sent_per_s),
        time_text(node.send_lag_p99_s),
        f"{node.cpu_percent:.0f} %",
        node_state(node, _RUNNING),
    )


def record_cells(node: NodeRecord, record: RunRecord) -> tuple[str, ...]:
    """The cells of :data:`NODE_COLUMNS` of a run that is over: figures of the time in which it had workers."""
    there_s = record.duration_s if node.gone_s is None else node.gone_s
    return (
        workers_text(node.first, node.workers),
        count_text(node.devices or None),
        short_count(node.sent / there_s) if there_s > 0 else DASH,
        time_text(node.send_lag_p99_s if node.sent else None),
        f"{node.cpu_percent:.0f} %" if node.sent else DASH,
        node_state(node, _ENDED if record.ended_at else DASH),
    )


def node_state(node: NodeStatus | NodeRecord, otherwise: str = "") -> str:
    """The state of a machine's workers as text: ``no worker since 0:31``, ``1 of 4 lost``.

    Args:
        node: the machine.
        otherwise: the word where none is lost.
    """
    if node.gone_s is not None:
        return f"no worker since {clock_text(node.gone_s)}"
    return f"{node.lost} of {node.workers} lost" if node.lost else otherwise


def gone_nodes(nodes: Iterable[NodeStatus]) -> list[NodeStatus]:
    """Those of which no worker is there any more."""
    return [node for node in nodes if node.gone_s is not None]


def workers_of_gone(nodes: Iterable[NodeStatus]) -> frozenset[int]:
    """The workers that a row of their machine says enough of."""
    return frozenset(number for node in gone_nodes(nodes) for number in range(node.first, node.first + node.workers))
