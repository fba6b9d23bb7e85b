"""The ledger's pages in Chinese: only data and names stay in English."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from idempotency.locks import CountDownLatch, FairLock, RateLimiter, ReadWriteLock, Semaphore, TokenBucket
from idempotency.locks.postgres import AdvisoryLock
from idempotency.locks.ratelimit import Rate
from idempotency.models import ConsumedMessage, LedgerAttempt, LedgerEntry, WebhookEvent
from tests.languages import latin_in

pytestmark = pytest.mark.django_db(transaction=True)

LEDGER, EVENTS = "/admin/idempotency/ledgerentry/", "/admin/idempotency/webhookevent/"
NOTHING_DECIDED = "所有请求都已有结果。"
DATA = [
    *("clerk", "host:1:1", "request-7", "a-key", "POST", "user:1", "things", "order:7", "shop.charge", "reserved"),
    *("bank.example", "event-7", "ConnectionError: away", "entity-7", "consumer-7", "message-7", "ETag"),
    *("stocktaking", "named:worker", "FairLock", "ReadWriteLock", "AdvisoryLock", "Lock", "Semaphore", "latch"),
    *("Latch", "CountDownLatch", "RateLimiter", "TokenBucket", "order:0190…", "user:7", "operator clerk"),
    "Content-Type: application/problem+json",
]


@pytest.fixture
def operator() -> Client:
    client = Client(headers={"Accept-Language": "zh-CN"})
    client.force_login(User.objects.create_superuser("clerk"))
    return client


@pytest.fixture
def entry() -> LedgerEntry:
    """An entry that a person has to decide about, with the history of its runs."""
    entry = LedgerEntry.objects.create(
        **{"scope": "user:1 POST things", "key": "a-key", "fingerprint": b"\0" * 32, "mode": "phased"},
        **{"state": "uncertain", "owner": "host:1:1", "subject": "order:7", "handler": "shop.charge"},
        **{"recovery_point": "reserved", "fence": 2},
    )
    ended = timezone.now()
    for fence, outcome in ((1, "lost"), (2, "uncertain")):
        LedgerAttempt.objects.create(
            entry=entry, fence=fence, owner="host:1:1", request_id="request-7", outcome=outcome, ended_at=ended
        )
    return entry


@pytest.fixture
def event() -> WebhookEvent:
    return WebhookEvent.objects.create(
        sender="bank.example",
        event_id="event-7",
        entity="entity-7",
        sequence=2,
        headers={"ETag": "1"},
        body=b"\xff",
        status="failed",
        error="ConnectionError: away",
    )


def seen(operator: Client, *pages: str) -> list[str]:
    """List what is left in Latin letters on the pages."""
    answers = [operator.get(page, follow=True) for page in pages]
    assert [answer.status_code for answer in answers] == [200] * len(pages)
    return [f"{answer.request['PATH_INFO']}: {text}" for answer in answers for text in latin_in(answer.text, DATA)]


def test_the_ledger(operator: Client, entry: LedgerEntry) -> None:
    own = f"{LEDGER}{entry.pk}"
    assert seen(operator, LEDGER, f"{LEDGER}?open=stalled", f"{own}/change/", f"{own}/history/") == []
    assert seen(operator, f"{LEDGER}statistics/", f"{own}/decide/", "/admin/idempotency/") == []


def test_answers_and_charts(operator: Client) -> None:
    assert NOTHING_DECIDED in operator.get(f"{LEDGER}statistics/").text
    finished = {"state": "finished", "response_status": 201, "finished_at": timezone.now(), "fingerprint": b"1"}
    shown = {"scope": "user:1 POST things", "mode": "atomic", "owner": "host:1:1"}
    bodies = {"a": {"response_body": b"\xff" * 9}, "b": {"purged_at": timezone.now() - timedelta(1)}, "c": {}}
    for key, body in bodies.items():
        row = LedgerEntry.objects.create(key=key, **finished, **shown, **body)
        assert seen(operator, f"{LEDGER}{row.pk}/change/") == []
    assert seen(operator, f"{LEDGER}statistics/", LEDGER) == []


def test_a_decision(operator: Client, entry: LedgerEntry) -> None:
    page = f"{LEDGER}{entry.pk}/decide/"
    refused = operator.post(page, {"outcome": "resolved", "body": "{", "location": "a b"})
    assert latin_in(refused.text, DATA) == []
    given = {"outcome": "abandoned", "note": "7", "fence": entry.fence, "status": 200}
    assert latin_in(operator.post(page, given, follow=True).text, DATA) == []  # its steps are not in this program
    LedgerEntry.objects.update(recovery_point="")
    done = operator.post(page, given, follow=True).text
    assert latin_in(done, DATA) == []
    assert "此记录已放弃" in done
    assert latin_in(operator.get(page, follow=True).text, DATA) == []


def test_events_of_senders(operator: Client, event: WebhookEvent) -> None:
    own = f"{EVENTS}{event.pk}"
    assert seen(operator, EVENTS, f"{own}/change/", f"{own}/replay/") == []
    said = operator.post(f"{own}/replay/", {"note": "7"}, follow=True).text
    assert latin_in(said, DATA) == []
    assert "没有带 @webhook 的处理程序" in said


def test_consumed_messages(operator: Client) -> None:
    row = ConsumedMessage.objects.create(consumer="consumer-7", message_id="message-7")
    own = f"/admin/idempotency/consumedmessage/{row.pk}/change/"
    assert seen(operator, "/admin/idempotency/consumedmessage/", own) == []


def test_locks(operator: Client) -> None:
    name, listed = "stocktaking", f"{LEDGER}locks/"
    worker = {"owner": "worker", "lease_seconds": 600}
    Semaphore(name).set_total(7)
    CountDownLatch(name).open(3)
    RateLimiter(name).set_rate(Rate(5, 60, 2))
    TokenBucket(name, permits=10, interval_seconds=600).acquire(4)
    with FairLock(name, **worker, raise_on_lost=False) as held:
        hold = f"{listed}release/?{urlencode({'name': name, 'kind': 'lock', 'token': held.token})}"
        with ReadWriteLock(name, **worker).read, AdvisoryLock(name, owner="worker"):
            assert (
                seen(operator, listed, f"{listed}?name={name}", f"{listed}?name=7", f"{listed}?name=%7D", hold)
                == []
            )
        assert latin_in(operator.post(hold, {}).text, DATA) == []
        done = operator.post(hold, {"note": "7"}, follow=True).text
        assert "已强制释放" in done
        late = operator.post(hold, {"note": "7"}, follow=True).text
        latch = operator.post(f"{listed}release/?name={name}&kind=latch", {"note": "7"}, follow=True).text
        assert [text for page in (done, late, latch) for text in latin_in(page, DATA)] == []
