"""How a fleet is dealt out: which key pair a device uses, and which devices and connections a worker has.

Devices of a key and of a worker are neighbours by number, so that a worker can have whole keys: then only that worker
spends a key's quota.
"""

from __future__ import annotations

import itertools
from typing import Final

_MOVED_AT_MOST: Final = 10
"""A bound between two workers moves to the next key's first device by a tenth of a worker's share, rounded, at most."""


def key_of(device: int, devices: int, keys: int) -> int:
    """The number of the key pair that a device uses, the same however many workers there are.

    Args:
        device: its number, from 0.
        devices: of the fleet.
        keys: how many pairs there are.
    """
    return device * keys // devices


def keys_of(share: range, devices: int, keys: int) -> slice:
    """The key pairs of a worker's devices.

    Args:
        share: the devices, at least one.
        devices: of the fleet.
        keys: how many pairs there are.
    """
    return slice(key_of(share[0], devices, keys), key_of(share[-1], devices, keys) + 1)


def deal(devices: int, workers: int, keys: int = 1) -> list[range]:
    """The devices of each worker: neighbours, as evenly as they go, and the devices of a key together.

    With a multiple of ``workers`` keys, or five times as many, every key belongs to one worker. With fewer keys
    workers have to share, and a bound stays where it is when the key's first device is too far away.

    Args:
        devices: of the fleet, not fewer than workers.
        workers: how many.
        keys: how many key pairs there are.
    """
    bounds = [_near_key(-(-devices * worker // workers), devices, workers, keys) for worker in range(workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(bounds)]


def connections_of(worker: int, workers: int, connections: int) -> int:
    """How many of a run's shared connections a worker has: all of them are dealt out, and each worker has one at least.

    Args:
        worker: its number, from 0.
        workers: how many there are.
        connections: of the run.
    """
    return max(1, connections * (worker + 1) // workers - connections * worker // workers)


def _near_key(bound: int, devices: int, workers: int, keys: int) -> int:
    key = bound * keys // devices
    firsts = (-(-devices * each // keys) for each in (key, key + 1))
    moved = min(firsts, key=lambda first: abs(first - bound))
    is_near = (2 * abs(moved - bound) - 1) * workers * _MOVED_AT_MOST <= 2 * devices
    return moved if is_near else bound
