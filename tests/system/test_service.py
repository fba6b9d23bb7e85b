"""The service: health, request ids, fallbacks, schema, settings that stop the start."""

import io
import json
import logging
import os
import runpy
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncRequestFactory, Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from gunicorn.config import Config

from shop import tasks
from shop.api import docs
from shop.platform.middleware import BodyMiddleware
from shop.platform.weblog import Logger
from tests.conftest import database_away
from tests.emptying import rows
from tests.sandbox import ROOT


@pytest.mark.django_db
def test_health_readiness_and_metrics(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "postgresql": True, "redis": True}
    metrics = client.get("/metrics")
    assert metrics["Content-Type"].startswith("text/plain")
    assert b"payonce_notifications_refused" in metrics.content


@pytest.mark.django_db(transaction=True)
def test_not_ready_without_postgresql(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with database_away():
        answer, metrics = client.get("/readyz"), client.get("/metrics")
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "The database is away: OperationalError" in caplog.messages[0]
    assert metrics.status_code == 200
    assert b"idempotency_redis_failures_total" in metrics.content
    assert b"idempotency_open_entries" not in metrics.content


def test_gunicorn_s_lines_are_json_and_django_has_no_form_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Logger(Config()).error("worker %s is silent", 7)
    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["level"], line["event"]) == ("gunicorn.error", "error", "worker 7 is silent")
    assert logging.getLogger("django").handlers == []


@pytest.mark.django_db
def test_jobs_that_ended_badly_are_removed_after_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "JOBS_BATCH", 2)
    statuses = ["todo", "doing", "succeeded", "failed", "cancelled", "aborted"]
    rows("TRUNCATE procrastinate_jobs CASCADE")  # what other tests left there
    for days in (29, 31):
        rows(
            "WITH job AS (INSERT INTO procrastinate_jobs (queue_name, task_name, status) "
            "SELECT 'default', 'tests.old', unnest(%s::procrastinate_job_status[]) RETURNING id) "
            "INSERT INTO procrastinate_events (job_id, type, at) "
            "SELECT id, 'started', now() - %s * interval '1 day' FROM job",
            *(statuses, days),
        )
    assert tasks.clear_jobs(timestamp=0) == 5  # of both ages what succeeded, of the older ones what did not
    left = rows("SELECT status::text FROM procrastinate_jobs ORDER BY 1")
    assert [status for (status,) in left] == sorted(["todo", "doing"] * 2 + ["failed", "cancelled", "aborted"])


def test_a_harmless_request_id_is_kept_and_another_replaced(client: Client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "trace-0042"})["X-Request-Id"] == "trace-0042"
    made = client.get("/healthz", headers={"X-Request-Id": "a b\n"})["X-Request-Id"]
    assert len(made) == 32


@pytest.mark.parametrize("debug", [True, False])
def test_unknown_addresses_under_the_api_are_problem_documents(settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    asker = Client(enforce_csrf_checks=True, headers={"X-Request-Id": "trace-0042"})
    for path in ("", "/", "/v1/nope", "/v1/orders/", "/v1/orders/999/nothing", "/v1/products/caf%C3%A9"):
        for answer in (asker.get(f"/api{path}"), asker.post(f"/api{path}")):
            assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json"), path
            assert (answer.json()["code"], answer.json()["request_id"]) == ("not_found", "trace-0042")
    assert asker.get("/no-such-page")["Content-Type"].startswith("text/html")


def test_a_foreign_host_is_refused_and_logged_without_a_traceback(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get("/api/v1/products", headers={"host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["code"] == "malformed"
    page = client.get("/", headers={"host": "evil.example"})
    assert (page.status_code, page["Content-Type"].startswith("text/html")) == (400, True)
    (console,) = (one for one in logging.getLogger().handlers if one.get_name() == "console")
    for line in caplog.records:
        assert console.filter(line)
        assert line.exc_info is None
    assert "django.security.DisallowedHost" in {line.name for line in caplog.records}


@pytest.mark.parametrize("debug", [True, False])
def test_nul_in_a_query_is_a_problem_document_under_the_api(client: Client, settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    answer = client.get("/api/v1/orders?cursor=%00")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    page = client.get("/?q=%00")
    assert (page.status_code, page["Content-Type"].startswith("text/html")) == (400, True)


class Broken(io.BytesIO):
    """A server's stream of chunks that are none."""

    def read(self, size: int | None = -1) -> bytes:
        raise RuntimeError(size)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "ends", "status", "code"),
    [
        (io.BytesIO(b"{broken"), True, 400, "malformed"),
        (io.BytesIO(b"{" * 262_145), True, 413, "payload_too_large"),
        (io.BytesIO(b"{broken"), False, 400, "validation_failed"),
        (Broken(), True, 400, "malformed"),
    ],
    ids=["taken", "too large", "not known to end, so taken for empty", "no chunks"],
)
def test_a_body_in_chunks_has_its_length(client: Client, body: Any, ends: bool, status: int, code: str) -> None:
    client.force_login(User.objects.create_user("ann"))
    sent: dict[str, Any] = {
        "wsgi.input": body,
        "wsgi.input_terminated": ends,
        "HTTP_TRANSFER_ENCODING": "chunked",
        "CONTENT_LENGTH": "",
        "CONTENT_TYPE": "application/json",
    }
    answer = client.generic("POST", "/api/v1/orders", **sent)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert answer.json()["code"] == code


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/accounts/login/", "/nowhere", "/webhooks/wechat", "/api/v1/orders"])
@pytest.mark.parametrize("zeros", ["", "0" * 20])
def test_a_large_upload_is_not_written_to_the_disk(client: Client, path: str, zeros: str) -> None:
    body = encode_multipart(BOUNDARY, {"file": io.BytesIO(b"x" * 270_000)})
    length = f"{zeros}{len(body)}"
    answer = client.generic("POST", path, body, MULTIPART_CONTENT, CONTENT_LENGTH=length)
    assert answer.status_code == 413


def test_a_body_in_chunks_has_its_length_behind_asgi_too() -> None:
    request = AsyncRequestFactory().generic("POST", "/", b"{}", "application/json")
    del request.META["CONTENT_LENGTH"]
    request.META["HTTP_TRANSFER_ENCODING"] = "chunked"
    BodyMiddleware(lambda seen: HttpResponse())(request)
    assert (request.META["CONTENT_LENGTH"], request.body) == ("2", b"{}")


@pytest.mark.django_db
def test_a_fault_under_the_api_is_a_problem_document(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("shop.catalog.products.list_products", fail)
    monkeypatch.setattr("shop.catalog.cache.rendered", fail)
    client.raise_request_exception = False
    user = User.objects.create_user("ann")
    client.force_login(user)
    answer = client.get("/api/v1/products")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    for language, words in (("en", "Something went wrong"), ("zh-hans", "不会重复扣款")):
        page = client.get("/", headers={"Accept-Language": language})
        assert (page.status_code, page["Content-Type"].partition(";")[0]) == (500, "text/html")
        assert (words in page.text, f'lang="{language}"' in page.text) == (True, True)


def test_the_schema_is_made_once_for_a_language_and_format(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counting(SchemaGenerator):
        def get_schema(self, *args: Any, **kwargs: Any) -> Any:
            made.append(translation.get_language())
            return super().get_schema(*args, **kwargs)

    monkeypatch.setattr("shop.api.docs.SchemaGenerator", Counting)
    docs._documents.clear()
    answers = {
        (language, given): client.get(
            f"/api/schema/?format={given}&lang=x{n}", headers={"Accept-Language": language}
        )
        for n in range(3)
        for language in ("en", "zh-hans")
        for given in ("json", "yaml")
    }
    assert sorted(made) == ["en", "en", "zh-hans", "zh-hans"]
    assert len({answer["ETag"] for answer in answers.values()}) == 4
    first = answers["en", "json"]
    assert (first["Content-Type"], first["Content-Language"]) == ("application/vnd.oai.openapi+json", "en")
    again = client.get("/api/schema/?format=json", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/api/schema/?format=yaml", headers={"If-None-Match": first["ETag"]})
    assert (other.status_code, b"openapi: 3.1.0" in other.content) == (200, True)
    none = client.get("/api/schema/", headers={"Accept": "text/html"})
    assert (none.status_code, none["Content-Type"]) == (406, "application/problem+json")
    assert none.json()["code"] == "not_acceptable"


def test_machines_ask_by_address(client: Client, settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.SECURE_SSL_REDIRECT = True
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.get(path, headers={"host": "10.0.0.7:8000"}).status_code == 200
    assert client.get("/", headers={"host": "10.0.0.7:8000"}).status_code == 400


PRODUCTION = {
    "DATABASE_URL": "postgresql://postgres@/payonce?host=/nowhere",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SECRET_KEY": "k7Qz9-Lm" * 10,
    "PUBLIC_URL": "https://shop.example",
}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY is not set"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY has 5 characters"),
        ({"SECRET_KEY": "demo-only-" + "0" * 54}, "SECRET_KEY still has its demo value"),
        ({"SECRET_KEY": "django-insecure-" + "k7Qz9-Lm" * 8}, "SECRET_KEY still has a value from a template"),
        ({"SECRET_KEY": "Change-Me-" * 7}, "SECRET_KEY still has a value from a template"),
        ({"SECRET_KEY_FALLBACKS": "short"}, "SECRET_KEY_FALLBACKS has 5 characters"),
        ({"SECRET_KEY_FALLBACKS": "k7Qz9-Lm" * 9 + ",short"}, "SECRET_KEY_FALLBACKS has 5 characters"),
        ({"HSTS_PRELOAD": "1"}, "HSTS_PRELOAD needs HSTS_SUBDOMAINS"),
        ({"WECHAT_API_V3_KEY": "changeme" * 4}, "WECHAT_API_V3_KEY still has a value from a template"),
        ({"STRIPE_WEBHOOK_SECRET": "whsec_change_me"}, "STRIPE_WEBHOOK_SECRET still has a value from a template"),
        ({"DATABASE_URL": ""}, "DATABASE_URL is not set"),
        ({"DATABASE_URL": "sqlite:///x"}, "DATABASE_URL must name a PostgreSQL database"),
        ({"REDIS_URL": ""}, "REDIS_URL is not set"),
        ({"PUBLIC_URL": ""}, "PUBLIC_URL is not set"),
        ({"PUBLIC_URL": "shop.example"}, "PUBLIC_URL must be an absolute"),
        ({"WECHAT_MCH_ID": "1"}, "WECHAT_API_URL is not set"),
        ({"WECHAT_MCH_ID": " ", "WECHAT_API_V3_KEY": "k7Qz9-Lm" * 4}, "WECHAT_MCH_ID is not set"),
        ({}, None),
    ],
)
def test_a_production_start_with_a_mistake_stops_and_names_it(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], named: str | None
) -> None:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME"}}
    environment = {**kept, **PRODUCTION, **changed}
    if named is not None and "WECHAT_MCH_ID" not in changed:  # every start reads the settings first
        monkeypatch.setattr(os, "environ", environment)
        with pytest.raises(ImproperlyConfigured, match=named):
            runpy.run_path(str(ROOT / "shop" / "settings.py"))
        return
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    checked = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (checked.returncode == 0) == (named is None), checked.stderr
    assert named is None or named in checked.stderr


def test_manage_py_prints_a_mistake_of_the_settings_alone() -> None:
    environment = {"PATH": os.environ["PATH"], **PRODUCTION, "DATABASE_URL": ""}
    command = [sys.executable, "manage.py", "load_demo"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("payonce: DATABASE_URL is not set")
    assert run.stderr.count("\n") == 1


def test_hosts_may_have_blanks_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**PRODUCTION, "ALLOWED_HOSTS": "a.example, b.example"})
    found = runpy.run_path(str(ROOT / "shop" / "settings.py"))["ALLOWED_HOSTS"]
    assert found == ["a.example", "b.example", "shop.example"]


def test_a_shell_reads_the_example_of_the_settings_as_systemd_does() -> None:
    """Both take only single-quoted text as it is: a shell would run what follows a `&`."""
    example = (ROOT / "deploy" / "payonce.env.example").read_text()
    settings = [line for line in example.splitlines() if line and not line.startswith("#")]
    quoted = dict(line.replace("'", "").split("=", 1) for line in settings if line.endswith("'"))
    script = "set -a; . deploy/payonce.env.example; env -0"
    said = subprocess.run(["sh", "-c", script], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    read = dict(line.split("=", 1) for line in said.stdout.split("\0") if line)
    assert {name: read[name] for name in quoted} == quoted
    assert len(quoted) == len(settings)
