"""Stable routing: every process sends a key to the same partition, and a new partition takes only its own share.

Rendezvous hashing: each partition has a number for the key, and the highest wins. So a partition that is added
wins some keys and nothing moves between the others; one that is removed leaves its keys to the runners-up.

Source: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998.
"""

import hashlib
from collections.abc import Iterable


def partition_of(key: str, *, partitions: Iterable[str]) -> str:
    """The partition that `key` belongs to, whatever the order in which they are named; costs a hash for each.

    Args:
        key: such as an order's id: what must stay in order goes to one partition.
        partitions: names, at least one. The names decide, so a renamed partition is another one.

    Raises:
        ValueError: no partition.
    """
    return ranked(key, partitions=partitions)[0]


def ranked(key: str, *, partitions: Iterable[str]) -> list[str]:
    """All partitions: the one that `key` belongs to, then the one that it falls to if that is away, and so on.

    Raises:
        ValueError: no partition.
    """
    names = sorted(set(partitions))
    if not names:
        raise ValueError("there is no partition to choose from")
    return sorted(names, key=lambda name: _weight(key, name), reverse=True)


def _weight(key: str, partition: str) -> bytes:
    # each part's length keeps ("ab", "c") apart from ("a", "bc")
    text = f"{len(key)}:{key}{partition}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
