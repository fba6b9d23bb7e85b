"""An API of Django Ninja: bearers, a schema, and one operation each for threads and for asyncio."""

from typing import Any

from django.http import HttpRequest
from django.urls import path
from ninja import NinjaAPI, Schema, Status
from ninja.security import HttpBearer
from notes.models import Note

from idempotency.ninja import idempotent


class Bearer(HttpBearer):
    """Any token is good; it names its bearer."""

    def authenticate(self, request: HttpRequest, token: str) -> str:
        return token


class NoteIn(Schema):
    text: str


class NoteOut(Schema):
    id: int
    text: str


api = NinjaAPI(auth=Bearer())


@api.post("/notes", response={201: NoteOut})
@idempotent
def leave(request: HttpRequest, note: NoteIn) -> Any:
    return Status(201, Note.objects.create(text=note.text))


@api.post("/notes/async", response={201: NoteOut})
@idempotent
async def leave_async(request: HttpRequest, note: NoteIn) -> Any:
    return Status(201, await Note.objects.acreate(text=note.text))


urlpatterns = [path("api/", api.urls)]
