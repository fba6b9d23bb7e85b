"""Any order of any commands of any owners, against a model that fits in a page.

Owners are names, so that one test can be all of them; what waits is queued by the command itself. Leases outlive the
test. The examples are drawn from the seed that pytest prints.
"""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from idempotency.locks import NotHeld
from idempotency.locks.engine import places, threads
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.places import Asking, Placed
from idempotency.locks.engine.steps import perform

OWNERS = ["a", "b", "c", "d"]
owners = st.sampled_from(OWNERS)


class Thing(threads.OnThreads, Placed):
    _kind = "model"


class Model(RuleBasedStateMachine):
    """Places, shared and exclusive counts of their holders, and who waits for what."""

    capacity = 3
    fair = True
    client: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.client.flushdb()
        self.hub = threads.hub_of(self.client)
        self.places = Thing("m", client=self.client)
        self.places._capacity, self.places._fair = self.capacity, self.fair
        self.holders: dict[str, list[int]] = {}
        self.queue: list[tuple[str, int, int]] = []
        self.asking: dict[str, Asking] = {}
        self.tokens: list[int] = []
        self.pubsub = self.client.pubsub()
        self.pubsub.subscribe(self.hub.channel)
        while not (message := self.pubsub.get_message(timeout=5)) or message["type"] != "subscribe":
            continue

    def teardown(self) -> None:
        self.pubsub.close()

    def weight(self, shared: int, exclusive: int) -> int:
        return self.capacity if exclusive else shared

    def free(self) -> int:
        return self.capacity - sum(self.weight(*counts) for counts in self.holders.values())

    def serve_queue(self) -> None:
        while self.queue and self.weight(*self.queue[0][1:]) <= self.free():
            owner, shared, exclusive = self.queue.pop(0)
            self.holders[owner] = [shared, exclusive]

    def _ask(self, owner: str, shared: int, exclusive: int, *, stay: bool) -> list[int]:
        asking = Asking(
            self.places,
            Holder(owner, lambda: True),
            (shared, exclusive),
            lease_seconds=600,
            watched=False,
            hub=self.hub,
            request=self.hub.new_request(),
        )
        self.asking[owner] = asking
        answer: list[int] = self.hub.answer(asking.ask(stay=stay, again=False))
        if answer[0] == 1 and owner not in self.holders:
            self.tokens.append(answer[1])
        return answer

    @rule(owner=owners, shared=st.integers(1, 3), stay=st.booleans())
    def take(self, owner: str, shared: int, stay: bool) -> None:
        self._take(owner, min(shared, self.capacity), 0, stay)

    @rule(owner=owners, stay=st.booleans())
    def take_all(self, owner: str, stay: bool) -> None:
        self._take(owner, 0, 1, stay)

    def _take(self, owner: str, shared: int, exclusive: int, stay: bool) -> None:
        if any(owner == each[0] for each in self.queue):
            return  # one that waits does nothing else
        mine = self.holders.get(owner)
        answer = self._ask(owner, shared, exclusive, stay=stay)
        if mine is not None:
            if exclusive and not mine[1]:
                assert answer[0] == -1
            else:
                assert answer[0] == 1
                mine[0] += shared
                mine[1] += exclusive
            return
        fits = self.weight(shared, exclusive) <= self.free()
        if fits and (not self.fair or not self.queue):
            assert answer[0] == 1
            self.holders[owner] = [shared, exclusive]
        else:
            assert answer[0] == 0
            if stay:
                self.queue.append((owner, shared, exclusive))
                assert answer[1] == len(self.queue) - 1

    @rule(owner=owners, exclusive=st.booleans())
    def give(self, owner: str, exclusive: bool) -> None:
        shared, all_of_it = (0, 1) if exclusive else (1, 0)
        steps = self.places._give_places(self.places._keys, Holder(owner, lambda: True), (shared, all_of_it))
        mine = self.holders.get(owner)
        if mine is None or mine[0] < shared or mine[1] < all_of_it:
            with pytest.raises(NotHeld):
                perform(steps, self.hub.answer)
            return
        perform(steps, self.hub.answer)
        mine[0] -= shared
        mine[1] -= all_of_it
        if mine == [0, 0]:
            del self.holders[owner]
        self.serve_queue()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def look_again(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from([each[0] for each in self.queue]))
        answer = self.hub.answer(self.asking[owner].ask(stay=True, again=True))
        assert answer[0] == 0
        assert answer[1] == [each[0] for each in self.queue].index(owner)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from([each[0] for each in self.queue]))
        assert self.hub.answer(self.asking[owner].ask(stay=False, again=True))[0] == 0
        self.queue = [each for each in self.queue if each[0] != owner]
        self.serve_queue()

    @rule(owner=owners)
    def undo(self, owner: str) -> None:
        """An acquire that is given up: what its request took goes back, and its place in the queue."""
        asking = self.asking.get(owner)
        if asking is None:
            return
        waiting = next((each for each in self.queue if each[0] == owner), None)
        mine = self.holders.get(owner)
        if waiting is None and (mine is None or mine != [*asking.share]):
            return  # what else it did since then is not this model's affair
        steps = self.places._undo(Holder(owner, lambda: True), asking.request, asking.share)
        held_by_it = self.last_request(owner) == asking.request
        perform(steps, self.hub.answer)
        if waiting is not None:
            self.queue.remove(waiting)
        elif held_by_it:
            del self.holders[owner]
        self.serve_queue()

    def last_request(self, owner: str) -> str:
        found = self.client.hget(self.places._keys[0], owner)
        return found[32:].decode().rpartition("|")[2] if found else ""

    @invariant()
    def the_server_agrees(self) -> None:
        while self.pubsub.get_message():
            continue  # or the server ends a connection that reads nothing

        fields = self.client.hgetall(self.places._keys[0])
        state = fields.pop(b"#", None)
        held = {}
        for owner, record in fields.items():
            shared, exclusive, _, _ = struct.unpack(">dddd", record[:32])
            if shared + exclusive:
                held[owner.decode()] = [int(shared), int(exclusive)]
        assert held == self.holders
        used = 0 if state is None else int(struct.unpack(">dddd", state[:32])[0])
        assert used == self.capacity - self.free()
        assert [each.decode() for each in self.client.zrange(self.places._keys[1], 0, -1)] == [
            each[0] for each in self.queue
        ]
        assert set(self.client.hkeys(self.places._keys[2])) == {each[0].encode() for each in self.queue}
        assert self.tokens == sorted(set(self.tokens))


@pytest.mark.parametrize(("capacity", "fair"), [(1, False), (1, True), (3, True), (2**31, True)])
def test_the_scripts_do_what_the_model_does(
    servers: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capacity: int, fair: bool
) -> None:
    monkeypatch.setattr(places, "CLAIM_SECONDS", 600.0)  # the model's grants do not end, however slow this machine
    monkeypatch.setattr(places, "PATIENCE_SECONDS", 600.0)
    machine = type("Machine", (Model,), {"capacity": capacity, "fair": fair, "client": servers("Redis").client})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
