"""Another service, which keeps the books of ours: its address, and what it notes. It dies where it is set to."""

import os
import signal
from pathlib import Path

from django.db import transaction
from django.urls import include, path

from idempotency.webhooks import StandardWebhooks, webhook
from payments.models import AuditEntry

PAYONCE_SECRETS = os.environ["PAYONCE_SECRETS"].split()


def die_once(point: str) -> None:
    """Kill this process here, unless one was killed here before."""
    try:
        (Path(os.environ["DEATHS"]) / point).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@webhook(
    "payonce",
    verify=StandardWebhooks(PAYONCE_SECRETS),
    entity=lambda event: event.json["data"]["entity"],
    sequence=lambda event: event.json["data"]["sequence"],
)
def decided(event):
    note(event.json["type"], event.json["data"])


def note(what, about):
    """Nothing but the door keeps a second line of an event away."""
    AuditEntry.objects.create(
        operator=about["payment"], subject=what, operator_id=about["sequence"], message=about["status"]
    )
    if about["sequence"] == 1:
        die_once(f"receiver, before its commit, {about['payment']}")
    if about["sequence"] == 2:
        transaction.on_commit(lambda: die_once(f"receiver, before its answer, {about['payment']}"))


urlpatterns = [path("hooks/payonce", decided), path("", include("shop.urls"))]
