"""An API of REST framework for bearers of a JWT, renewed before each call, and for guests who have none."""

import base64
import hashlib
import hmac
import json
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.urls import path
from notes.models import Note
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.drf import idempotent


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signature(text: str) -> str:
    return encoded(hmac.digest(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256))


class Bearer(BaseAuthentication):
    """No user of Django's: what a token claims is `request.auth`."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            return None
        signed, _, signature_given = token.rpartition(".")
        if not hmac.compare_digest(signature(signed), signature_given):
            raise AuthenticationFailed
        return AnonymousUser(), json.loads(base64.urlsafe_b64decode(signed.partition(".")[2] + "=="))


class Open(APIView):
    authentication_classes = [Bearer]
    permission_classes = []


class Tokens(Open):
    def post(self, request: Request) -> Response:
        """A token of its own for each call: only `iss` and `sub` are those of the one before."""
        claims = {"iss": "foreign", "sub": request.data["user"], "jti": uuid4().hex}
        parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
        return Response({"token": ".".join([*parts, signature(".".join(parts))])})


class Notes(Open):
    @idempotent
    def post(self, request: Request) -> Response:
        note = Note.objects.create(text=request.data["text"])
        return Response({"id": note.pk, "text": note.text}, status=201)


urlpatterns = [path("tokens/", Tokens.as_view()), path("notes/", Notes.as_view())]
