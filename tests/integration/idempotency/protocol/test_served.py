"""The small API behind gunicorn: what servers make of headers, and what a crash leaves of a session."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection

from tests.ports import free_port
from tests.running import until
from tests.sandbox import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

Effects = Callable[[], int]


@pytest.fixture(scope="module")
def served(django_db_setup: None) -> Iterator[str]:
    """Its address; one worker, which its master replaces when it dies."""
    url = f"127.0.0.1:{free_port()}"
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.integration.idempotency.protocol.served",
        "SERVED_DATABASE": str(connection.settings_dict["NAME"]),
        "LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "gunicorn", "django.core.wsgi:get_wsgi_application()", "--bind", url]
    server = subprocess.Popen(
        [*command, "--worker-class", "gthread", "--log-level", "critical", "--no-control-socket"],
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    try:
        until(lambda: answers(f"http://{url}/healthz"))
        yield f"http://{url}"
    finally:
        server.terminate()
        server.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_a_key_on_two_lines_is_no_key(effects: Effects, served: str) -> None:
    """Under ASGI in test_async_views.py."""
    key, other = str(uuid4()), str(uuid4())
    with httpx.Client(base_url=served, trust_env=False, timeout=30) as client:

        def post(*lines: str) -> httpx.Response:
            return client.post("/long", headers=[("Idempotency-Key", line) for line in lines])

        for lines in ((key, key), (key, other), (f'"{key}"', f'"{key}"'), (key, f'"{key}"'), (f"{key},{other}",)):
            answer = post(*lines)
            assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_invalid"), lines
        assert effects() == 0
        assert post(key).status_code == 200
        assert post(f'"{key}"').headers["Idempotent-Replayed"] == "true"
        assert effects() == 1


def test_a_replay_leads_where_the_first_answer_led_though_the_process_died_after_the_commit(
    effects: Effects, served: str
) -> None:
    session = SessionStore()
    session.create()
    key, cookies = {"Idempotency-Key": str(uuid4())}, {"sessionid": str(session.session_key)}
    with pytest.raises(httpx.TransportError), httpx.Client(trust_env=False, cookies=cookies) as client:
        client.post(f"{served}/checkout", headers={**key, "X-Die": "1"}, timeout=30)
    assert effects() == 1
    until(lambda: answers(f"{served}/healthz"))
    with httpx.Client(base_url=served, trust_env=False, timeout=30, cookies=cookies) as client:
        again = client.post("/checkout", headers=key)
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (303, "true")
        shown = client.get(again.headers["Location"])
    assert (shown.status_code, shown.text) == (200, f"order {Group.objects.get().pk}")
