"""Redis Cluster: slots of keys, scripts that a node lacks, messages across nodes."""

import re

import pytest
from django.contrib.auth.models import User
from redis.cluster import key_slot

from idempotency.redis import fastpath, marker, subscriber
from idempotency.request.keys import digest_of
from tests.system.stores.conftest import Effects, Post, is_replay_of
from tests.system.stores.stores import Clustered
from tests.system.stores.urls import PLAN

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.system.stores.urls"),
    pytest.mark.parametrize("pair", [("/atomic", "Redis Cluster"), ("/phased", "Redis Cluster")], ids=" ".join),
]

SPREAD = [f"k{number}" for number in range(12)]


def test_every_name_carries_the_requests_hash_tag_and_a_node_that_lost_its_scripts_is_sent_them_again(
    post: Post, effects: Effects, store: Clustered
) -> None:
    firsts = {key: post(key) for key in SPREAD}
    assert {first.status_code for first in firsts.values()} == {201}
    names = store.keys()
    assert len(names) == len(SPREAD)
    for name in names:
        assert (tag := re.fullmatch(rb".*:key:\{([0-9a-f]{64})\}", name)) is not None
        assert key_slot(name) == key_slot(tag[1])
    with store.topology.data_nodes() as clients:
        assert all(client.keys("*:key:*") for client in clients)
        clients[0].script_flush()  # EVALSHA gets NOSCRIPT from this one node only
    for key, first in firsts.items():
        assert is_replay_of(post(key), first)
        assert post(f"again-{key}").status_code == 201
    assert effects() == 2 * len(SPREAD)


def test_a_message_reaches_listeners_at_every_node(store: Clustered, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscriber's connection is to one node; a script publishes at its key's."""
    monkeypatch.setattr(subscriber, "READY_SECONDS", 60)  # a busy machine may confirm late
    digests = [digest_of(scope="s", key=key) for key in SPREAD]
    owners = {store.topology.owner_of(marker.key_of(digest)) for digest in digests}
    assert len(owners) == 3
    with subscriber.listen(marker.key_of(digests[0])) as home:  # this one's node is the subscriber's
        assert home is not None
        for digest in digests[1:]:
            with subscriber.listen(marker.key_of(digest)) as bell:
                assert bell is not None
                claimed = marker.claim(marker.key_of(digest), fingerprint=b"f" * 32, owner="me", ttl_seconds=60)
                assert isinstance(claimed, marker.Claimed)
                marker.release(marker.key_of(digest), claimed)
                assert bell.wait(60)
        assert not home.wait(0)


def test_one_lost_master_of_three_costs_no_promise(
    post: Post, effects: Effects, store: Clustered, user: User, path: str
) -> None:
    """Without a replica the whole cluster refuses soon after."""
    scope = f"user:{user.pk} POST {path[1:]}"
    name = marker.key_of(digest_of(scope=scope, key="k0"))
    PLAN.during.append(lambda: store.kill_owner(name))
    firsts = {key: post(key) for key in SPREAD}
    assert {first.status_code for first in firsts.values()} == {201}
    for key, first in firsts.items():
        fastpath.breaker.succeeded()
        assert is_replay_of(post(key), first)
    assert effects() == len(SPREAD)
