"""What operators see: metrics, log lines, spans, counts and the admin's pages."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import timezone
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from idempotency.admin.pages import COUNTED_MAX, PAGED_MAX, EstimatingPaginator
from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerEntry
from idempotency.observability import logs, statistics
from shop.platform.logs import json_formatter
from tests.integration.idempotency import urls
from tests.integration.idempotency.conftest import Caller, end_the_lease
from tests.integration.idempotency.urls import PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

urlpatterns = [*urls.urlpatterns, path("", include("shop.urls"))]


@contextmanager
def counting(name: str, label: str = "", values: Mapping[str, int] = {"": 1}, **labels: str) -> Iterator[None]:
    """Require the counter to grow in the block, by so much for each value of the label."""

    def counts() -> dict[str, float]:
        named = {value: labels | ({label: value} if label else {}) for value in values}
        return {value: REGISTRY.get_sample_value(name, each) or 0.0 for value, each in named.items()}

    before = counts()
    yield
    assert {value: count - before[value] for value, count in counts().items()} == values


class TestMetrics:
    def test_every_way_to_end_is_counted(self, caller: Caller) -> None:
        for answer, outcome in {201: "executed", 409: "refused", 429: "not_stored", 500: "failed"}.items():
            with counting("idempotency_requests_total", mode="atomic", outcome=outcome):
                caller.post(key=f"k{answer}", body={"name": "a", "answer": answer})

    def test_replays_by_where_they_were_found_and_conflicts_by_kind(self, caller: Caller) -> None:
        caller.post()
        with (
            counting("idempotency_replays_total", "source", {"redis": 1, "ledger": 1}),
            counting("idempotency_conflicts_total", kind="reused"),
        ):
            caller.post()
            caller.post(body={"name": "b"})
            with override_settings(IDEMPOTENCY={"REDIS": None}):
                caller.post()

    def test_a_phased_call_is_counted_once_by_how_it_ended(
        self, caller: Caller, caplog: pytest.LogCaptureFixture
    ) -> None:
        def overtake() -> None:
            PLAN["during"] = None
            end_the_lease()
            caller.post("/phased", key="k2", body={})

        ends = {"uncertain": 1, "executed": 2, "replayed": 2, "not_stored": 1}
        with counting("idempotency_requests_total", "outcome", ends, mode="phased"):
            PLAN.update(answer=202, then=201)
            for _ in range(3):  # uncertain, executed, and its current state shown again
                caller.post("/phased", body={})
            PLAN["answer"] = 503
            caller.post("/phased", body={})
            PLAN.update(answer=201, during=overtake)
            caplog.clear()
            with counting("idempotency_conflicts_total", kind="lost_lease"):
                caller.post("/phased", key="k2", body={})  # it is the other run that counts as executed
        assert not [line for line in caplog.records if line.levelno >= logging.ERROR]

    def test_a_redis_that_fails_is_counted(self, caller: Caller) -> None:
        location = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
        with counting("idempotency_redis_failures_total"), override_settings(CACHES={"default": location}):
            caller.post()

    def test_what_is_open_is_read_from_the_ledger(self, caller: Caller, client: Client) -> None:
        PLAN["answer"] = 202
        caller.post("/phased", body={})
        text = client.get("/metrics").content.decode()
        assert 'idempotency_open_entries{state="uncertain"} 1.0' in text
        assert 'idempotency_open_entries{state="stalled"} 0.0' in text
        assert 'idempotency_open_age_seconds{state="uncertain"}' in text

    def test_every_metric_is_documented(self) -> None:
        reap()  # the tests before have emptied the table that says when
        documented = Path("docs/reference/metrics.md").read_text()
        names = {family.name for family in REGISTRY.collect() if family.name.startswith("idempotency_")}
        assert len(names) == 12
        assert [name for name in names if f"`{name}" not in documented] == []


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What would be written, as JSON objects, of the loggers `idempotency` and `shop.test`."""
    found: list[dict[str, Any]] = []

    class Collector(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(self.format(record)))

    handler = Collector()
    handler.setFormatter(json_formatter())
    handler.addFilter(logs.ContextFilter())
    loggers = [logging.getLogger("idempotency"), logging.getLogger("shop.test")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield found
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


class TestLogs:
    def test_a_line_carries_request_id_digest_and_subject_and_never_the_key(
        self, caller: Caller, lines: list[dict[str, Any]]
    ) -> None:
        PLAN["about"] = ("order", "0190")
        PLAN["during"] = lambda: logging.getLogger("shop.test").warning("gone %s", "wrong")
        caller.post("/phased", key="secret-key", body={}, **{"X-Request-Id": "trace-0042"})
        others, line = lines
        assert (others["event"], others["key_digest"]) == ("gone wrong", line["key_digest"])
        assert [line[name] for name in ("event", "level", "logger", "request_id", "subject")] == [
            *("keyed request: executed", "debug", "idempotency", "trace-0042", "order:0190")
        ]
        assert len(line["key_digest"]) == 64
        assert "secret-key" not in json.dumps(lines)

    def test_a_refusal_that_is_kept_is_no_warning_and_neither_is_its_replay(
        self, caller: Caller, lines: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
    ) -> None:
        kept, unkept = {"name": "a", "answer": 409}, {"name": "a", "answer": 429}
        assert [caller.post(body=kept).status_code for _ in range(2)] == [409, 409]
        assert [line["event"] for line in lines] == ["keyed request: refused", "keyed request: replayed"]
        assert not [record for record in caplog.records if record.name == "django.request"]
        caller.post(body=unkept, key="k2")
        assert [record.levelname for record in caplog.records if record.name == "django.request"] == ["WARNING"]

    def test_the_next_request_has_its_own(
        self, caller: Caller, client: Client, lines: list[dict[str, Any]]
    ) -> None:
        caller.post()
        client.get("/healthz", headers={"X-Request-Id": "trace-0043"})
        logging.getLogger("shop.test").warning("after")
        assert lines[-1]["request_id"] == "trace-0043"
        assert "key_digest" not in lines[-1]


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


class TestTraces:
    def test_a_span_has_mode_outcome_and_subject_and_never_the_key(
        self, caller: Caller, spans: InMemorySpanExporter
    ) -> None:
        spans.clear()
        PLAN["about"] = ("order", "0190")
        for _ in range(2):
            caller.post("/phased", key="secret-key", body={})
        caller.post("/phased", key="secret-key", body={"other": 1})
        caller.post(key="k2", body={"name": "a", "answer": 500})
        shown = [dict(span.attributes or {}) for span in spans.get_finished_spans()]
        outcomes = [each["idempotency.outcome"] for each in shown]
        assert outcomes == ["executed", "replayed", "reused", "failed"]
        assert [each["idempotency.mode"] for each in shown] == ["phased"] * 3 + ["atomic"]
        assert shown[0]["idempotency.subject"] == "order:0190"
        failed = [span.status.status_code is trace.StatusCode.ERROR for span in spans.get_finished_spans()]
        assert failed == [False, False, False, True]
        assert "secret-key" not in str(shown)

    @pytest.mark.parametrize("status", [None, 404, "failed"])  # of another library: it is no answer of ours
    def test_an_exception_is_logged_by_its_name(self, status: Any, spans: InMemorySpanExporter) -> None:
        spans.clear()
        error = IntegrityError("duplicate\nDETAIL:  Key (payer)=(openid-secret) already exists.")
        error.status = status  # type: ignore[attr-defined]
        with pytest.raises(IntegrityError), logs.span():
            raise error
        (span,) = spans.get_finished_spans()
        assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "IntegrityError")
        assert "openid-secret" not in span.to_json()


class TestAdmin:
    def test_charts_without_and_with_anything_to_show(self, admin_client: Client, caller: Caller) -> None:
        page = "/admin/idempotency/ledgerentry/statistics/"
        empty = admin_client.get(page).content.decode()
        assert "Every request has its answer" in empty
        assert (empty.count("None in these 48 hours"), empty.count("an hour</p>")) == (1, 0)
        PLAN["answer"] = 202
        caller.post("/phased", key="open-one", body={})
        caller.post(key="done-one")
        caller.post(key="done-one")
        shown = admin_client.get(page).content.decode()
        assert "<strong>1</strong> done" in shown
        assert "<strong>1</strong> without a final answer" in shown
        assert "2 an hour</p>" in shown
        assert "open-one" in shown
        assert page in admin_client.get("/admin/idempotency/ledgerentry/").content.decode()

    def test_an_hour_is_one_of_utc_whatever_the_projects_zone(self, settings: Any, caller: Caller) -> None:
        settings.TIME_ZONE = "Asia/Kathmandu"  # its hours begin at a quarter past
        caller.post(key="done-one")
        assert [counts for counts in statistics.executed_by_hour().values() if counts] == [{"executed": 1}]

    def test_an_entry_that_nobody_runs_is_called_stalled(self, admin_client: Client) -> None:
        open_entry: dict[str, Any] = {"scope": "s", "fingerprint": b"", "mode": "phased"}
        over = timezone.now() - timedelta(minutes=5)
        stalled = LedgerEntry.objects.create(**open_entry, key="k", state="running", lease_until=over)
        LedgerEntry.objects.bulk_create(
            LedgerEntry(**open_entry, key=f"k{n}", state="uncertain") for n in range(20)
        )
        pages = ("", "statistics/", f"{stalled.pk}/decide/")
        shown = [admin_client.get(f"/admin/idempotency/ledgerentry/{page}").content.decode() for page in pages]
        assert ["stalled" in page for page in shown] == [True] * 3
        assert "The 20 oldest of 21: see all" in shown[1]

    def test_filters_take_nonsense_for_none(self, admin_client: Client, caller: Caller) -> None:
        PLAN["answer"] = 202
        caller.post("/phased", body={})
        caller.post(key="k2")
        for query in ("open=nothing", "mode=nothing", "response_status=abc", "response_status=1e9"):
            listed = admin_client.get(f"/admin/idempotency/ledgerentry/?{query}")
            assert len(listed.context["cl"].result_list) == 2, query

    def test_the_subject_leads_to_its_page(self, admin_client: Client, caller: Caller) -> None:
        PLAN["about"] = ("person", "1")
        caller.post("/phased", body={})
        page = f"/admin/idempotency/ledgerentry/{LedgerEntry.objects.get().pk}/change/"
        assert "all requests about it" in admin_client.get(page).content.decode()
        with override_settings(IDEMPOTENCY={"SUBJECT_ADMIN": {"person": "admin:auth_user_change"}}):
            assert "/admin/auth/user/1/change/" in admin_client.get(page).content.decode()

    def test_a_large_table_is_estimated_and_nobody_pages_far_down(
        self, monkeypatch: pytest.MonkeyPatch, admin_client: Client
    ) -> None:
        everything = LedgerEntry.objects.order_by("pk")
        assert (EstimatingPaginator(everything, 50).count, COUNTED_MAX) == (0, 10_000)
        monkeypatch.setattr("idempotency.admin.pages.COUNTED_MAX", 10)
        monkeypatch.setattr("idempotency.admin.pages._estimate", lambda table, using: 90_000_000)
        LedgerEntry.objects.bulk_create(
            LedgerEntry(scope="s", key=f"k{n}", fingerprint=b"", mode="atomic", state="running") for n in range(11)
        )
        assert EstimatingPaginator(everything.filter(scope="s"), 50).count == 10
        pages = EstimatingPaginator(everything, 50)
        assert (pages.count, pages.num_pages, PAGED_MAX) == (90_000_000, 2000, 100_000)
        listed = admin_client.get("/admin/idempotency/ledgerentry/?all=")
        assert "90000000" in listed.content.decode().replace(",", "").replace("\xa0", "")
        assert admin_client.get("/admin/idempotency/ledgerentry/?p=2000000").status_code == 302
