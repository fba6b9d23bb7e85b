"""A project's own suite on SQLite, without Redis: ENABLED is False, and its keyed views run."""

import subprocess
from pathlib import Path

SUITE = """
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY="x" * 50,
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "idempotency"],
    MIDDLEWARE=["idempotency.middleware.IdempotencyMiddleware"],
    IDEMPOTENCY={"ENABLED": False, "KEYED": ["/named"]},
)
django.setup()

from io import StringIO

from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.test import Client, TestCase
from idempotency import KeyedCall, NoOp, Phases, Problem, Response, idempotent
from idempotency.maintenance import complete_stalled, reap
from idempotency.webhooks import apply_stored_events


@idempotent
def marked(request, call: KeyedCall):
    made = Group.objects.create(name=f"group {Group.objects.count()}")
    call.about("group", made.pk)
    if "refuse" in request.POST:
        raise Problem(409, "refused", "No.")
    return HttpResponse(made.pk, status=201)


def named(request):
    return HttpResponse(Group.objects.create(name=f"group {Group.objects.count()}").pk)


async def asynchronous(request, call: KeyedCall):
    made = await Group.objects.acreate(name="async")
    return HttpResponse(made.pk)


steps = Phases("suite")


@steps.atomic("started")
def start(progress):
    Group.objects.create(name="phased")
    return NoOp()


@steps.outside("called")
def call_out(progress):
    return Response(201, progress.data)


@idempotent(mode=steps)
def phased(request):
    return steps.respond(request, {"amount": 5})


urlpatterns = [
    path("marked", marked),
    path("named", named),
    path("async", idempotent(asynchronous)),
    path("phased", phased),
]


class Suite(TestCase):
    def test_calls_run_and_say_that_they_are_unkeyed(self):
        for where in ("/marked", "/named", "/marked", "/async", "/phased"):
            answer = self.client.post(where, headers={"Idempotency-Key": "k1"})
            self.assertIn(answer.status_code, {200, 201})
            self.assertEqual(answer["Idempotency"], "disabled")
        self.assertEqual(Group.objects.count(), 5)

    def test_a_refusal_is_undone(self):
        self.assertEqual(self.client.post("/marked", {"refuse": 1}).status_code, 409)
        self.assertEqual(Group.objects.count(), 0)

    def test_what_a_scheduler_runs_does_nothing_and_says_so(self):
        for work in (reap, complete_stalled, apply_stored_events):
            with self.assertLogs("idempotency", "WARNING") as logs:
                self.assertFalse(any(work().values()))
            self.assertIn("ENABLED", logs.output[0])
        for action in ("reap", "complete", "apply"):
            said = StringIO()
            call_command("idempotency", action, stdout=said)
            self.assertIn("ENABLED", said.getvalue())
        with self.assertRaisesMessage(CommandError, "ENABLED"):
            call_command("idempotency", "forget-redis")


call_command("check", "--fail-level", "WARNING")
call_command("test", "__main__")
"""


def test_a_suite_on_sqlite_runs_on_the_wheel(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "suite.py"
    script.write_text(SUITE)
    done = subprocess.run([python, script], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr
