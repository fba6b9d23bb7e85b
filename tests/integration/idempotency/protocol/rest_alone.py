# ruff: noqa: E402
"""A project with REST framework and without drf-spectacular, in a process of its own: calls twice, prints both."""

import json
import os
import sys
from typing import Any

sys.modules["drf_spectacular"] = None  # type: ignore[assignment]  as if it were not installed

import django
import environ
from django.conf import settings

settings.configure(
    SECRET_KEY="x" * 50,
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": environ.Env().db("DATABASE_URL")},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "idempotency"],
    MIDDLEWARE=["idempotency.middleware.IdempotencyMiddleware"],
    IDEMPOTENCY={"REDIS": os.environ["REDIS_URL"]},
    ROOT_URLCONF=__name__,
)
django.setup()

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient
from rest_framework.views import APIView

from idempotency.drf import TokenList, exception_handler, idempotent


class Orders(APIView):
    def get_exception_handler(self) -> Any:
        return exception_handler

    @idempotent
    def post(self, request: Request) -> Response:
        return Response({"id": Group.objects.create(name=request.data["name"]).pk}, status=201)


urlpatterns = [path("orders", Orders.as_view()), path("tokens", TokenList.as_view())]


def main() -> None:
    """Order twice under a key and under a token, once with neither; print what came back."""
    call_command("check", fail_level="WARNING")
    client = APIClient()
    client.force_authenticate(User.objects.get(username="ann"))
    token = client.post("/tokens").json()["token"]
    for name, headers in (("a", {"Idempotency-Key": "k1"}), ("b", {"Idempotency-Token": token})):
        answers = [client.post("/orders", {"name": name}, format="json", headers=headers) for _ in range(2)]
        shown = [
            (answer.status_code, answer.json(), "Idempotent-Replayed" in answer.headers) for answer in answers
        ]
        print(json.dumps(shown))
    print(client.post("/orders", {"name": "c"}, format="json").json()["code"])


if __name__ == "__main__":
    main()
