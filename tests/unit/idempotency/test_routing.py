"""Keys to partitions: everyone agrees, the load is even, and few keys move."""

from collections import Counter

import pytest

from idempotency.routing import partition_of, ranked

KEYS = [f"order {number}" for number in range(20_000)]
TEN = [f"worker-{number}" for number in range(10)]


def routes(partitions: list[str]) -> dict[str, str]:
    return {key: partition_of(key, partitions=partitions) for key in KEYS}


def test_the_load_is_even() -> None:
    shares = Counter(routes(TEN).values())
    assert set(shares) == set(TEN)
    assert all(abs(share - 2000) < 200 for share in shares.values())  # four and a half standard deviations


def test_a_new_partition_takes_its_share_and_nothing_else_moves() -> None:
    before, after = routes(TEN), routes([*TEN, "worker-10"])
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {"worker-10"}
    assert len(moved) < len(KEYS) / 11 * 1.15


def test_a_lost_partition_leaves_its_keys_to_the_runners_up() -> None:
    before, after = routes(TEN), routes(TEN[1:])
    for key in KEYS:
        expected = ranked(key, partitions=TEN)[1] if before[key] == TEN[0] else before[key]
        assert after[key] == expected


def test_every_process_and_every_release_agrees() -> None:
    assert [partition_of(f"order {number}", partitions=reversed(TEN)) for number in range(3)] == GOLDEN
    assert partition_of("a", partitions=["only"]) == "only"
    with pytest.raises(ValueError, match="no partition"):
        partition_of("a", partitions=[])


# written down once: a change of these would send half-done work to other workers on an upgrade
GOLDEN = ["worker-2", "worker-8", "worker-6"]
