"""Doors of foreign projects: each leaves a note in its own way, and reports alike."""

import os
import signal
import subprocess
from typing import Any, Literal, NamedTuple

import httpx

from tests.foreign.foreign import ForeignProject, Guest, Server, replayed

REFUSALS: dict[str, "Outcome"] = {"idempotency_key_reused": "reused", "idempotency_in_progress": "running"}
SECONDS = 60

Outcome = Literal["done", "reused", "running", "died"]
User = Literal["ann", "bob"]


class Result(NamedTuple):
    """Outcome of a call, what it gave back, and whether it said that this was stored before."""

    outcome: Outcome
    value: Any = None
    replayed: bool | None = None  # None: the door does not say


class Door:
    """A project's way of leaving a note, from many threads at once; it survives its server."""

    says_replayed = True

    def __init__(self, project: ForeignProject) -> None:
        self.project = project
        self.server = Server(project)

    def close(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        self.server.kill()
        self.server = Server(self.project)

    def leave(self, text: str, *, key: str, user: User = "ann", copies: int = 1, dying: bool = False) -> Result:
        """Leave a note, as one of `copies`; a dying call loses its process after the commit."""
        headers = {"Idempotency-Key": key, **({"X-Die": "now"} if dying else {})}
        try:
            answer = self.send(text, user, headers)
        except httpx.TransportError:
            self.restart()
            return Result("died")
        if answer.status_code >= 400:
            return Result(REFUSALS[answer.json()["code"]])
        return Result("done", self.value_of(answer, user), replayed(answer) if self.says_replayed else None)

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        raise NotImplementedError

    def value_of(self, answer: httpx.Response, user: User) -> Any:
        return answer.json()

    def effects(self, text: str) -> int:
        """How many notes with this text there are."""
        return self.project.effects(text)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=SECONDS, trust_env=False, **options)


class NinjaDoor(Door):
    """Bearers of Django Ninja."""

    path = "/api/notes"

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        with self.client(headers={"Authorization": f"Bearer {user}"}) as client:
            return client.post(self.path, json={"text": text}, headers=headers)


class AsyncNinjaDoor(NinjaDoor):
    path = "/api/notes/async"


class TokenDoor(Door):
    """A fresh token for each call."""

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        with self.client() as client:
            return client.post(
                "/notes/", json={"text": text}, headers={**headers, **self.credential(client, user)}
            )

    def credential(self, client: httpx.Client, user: User) -> dict[str, str]:
        token = client.post("/tokens/", json={"user": user}).json()["token"]
        return {"Authorization": f"Bearer {token}"}


class GuestDoor(TokenDoor):
    """The same API for a guest; the other user has a token."""

    def credential(self, client: httpx.Client, user: User) -> dict[str, str]:
        return {} if user == "ann" else super().credential(client, user)


class CheckoutDoor(Door):
    """Two sessions. What a caller gets is the page behind the redirect."""

    def __init__(self, project: ForeignProject) -> None:
        super().__init__(project)
        self._cookies = {user: Guest(self.server).cookies for user in ("ann", "bob")}

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        cookies = self._cookies[user]
        with self.client(cookies=cookies) as client:
            own = {"X-CSRFToken": cookies["csrftoken"], **headers}
            return client.post("/checkout/", data={"text": text}, headers=own)

    def value_of(self, answer: httpx.Response, user: User) -> Any:
        with self.client(cookies=self._cookies[user]) as client:
            return client.get(answer.headers["Location"]).json()


class TenantDoor(Door):
    """User 1 of each of two tenants of django-tenants: the same key there is another call."""

    hosts = {"ann": "a.example.org", "bob": "b.example.org"}

    def __init__(self, project: ForeignProject, *, name: str, password: str) -> None:
        super().__init__(project)
        self._cookies: dict[User, dict[str, str]] = {"ann": {}, "bob": {}}
        for user, cookies in self._cookies.items():
            cookies.update(self._ask("GET", "/", user).cookies)
            form = {"username": name, "password": password, "csrfmiddlewaretoken": cookies["csrftoken"]}
            cookies.update(self._ask("POST", "/admin/login/", user, data=form).cookies)

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        own = {"X-CSRFToken": self._cookies[user]["csrftoken"], **headers}
        return self._ask("POST", "/notes/", user, own, json={"text": text})

    def effects(self, text: str) -> int:
        query = "SELECT (SELECT count(*) FROM {0} WHERE text = %s) + (SELECT count(*) FROM {1} WHERE text = %s)"
        return int(self.project.rows(query.format("a.notes_note", "b.notes_note"), text, text)[0][0])

    def _ask(
        self, method: str, path: str, user: User, headers: dict[str, str] | None = None, **how: Any
    ) -> httpx.Response:
        # cookies by hand: the address that is called is not the host that is named
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies[user].items())
        with self.client() as client:
            return client.request(
                method, path, headers={"Host": self.hosts[user], "Cookie": cookies, **(headers or {})}, **how
            )


class TaskDoor(Door):
    """A view that enqueues a task of `django.tasks`."""

    says_replayed = False

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        with self.client() as client:
            given = {"text": text, "key": headers["Idempotency-Key"], "user": user}
            return client.post("/notes/", json=given, headers=headers)


class CeleryDoor(Door):
    """A view that waits for a task; a dying call kills one of the worker's eight processes."""

    def __init__(self, project: ForeignProject) -> None:
        super().__init__(project)
        command = ["-m", "celery", "-A", "doors.worker", "worker", "--concurrency", "8"]
        with (project.folder / "celery.log").open("w") as log:
            self._worker = subprocess.Popen(
                [str(project.python), *command, "--without-gossip", "--without-mingle"],
                cwd=project.folder,
                env=project.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        os.killpg(self._worker.pid, signal.SIGKILL)  # with its eight children
        self._worker.wait(30)
        super().close()

    def leave(self, text: str, *, key: str, user: User = "ann", copies: int = 1, dying: bool = False) -> Result:
        given = {"text": text, "key": key, "user": user, "copies": copies, "dying": dying}
        with self.client() as client:
            answer = client.post("/notes/", json=given)
        if answer.status_code == 201:
            return Result("done", answer.json())
        return Result(REFUSALS[answer.json()["code"]])


DOORS: dict[str, tuple[type[Door], str]] = {
    "ninja": (NinjaDoor, "over_ninja"),
    "ninja-async": (AsyncNinjaDoor, "over_ninja"),
    "token": (TokenDoor, "over_tokens"),
    "second alias": (TokenDoor, "over_a_second_alias"),
    "guest": (GuestDoor, "over_tokens"),
    "checkout": (CheckoutDoor, "over_a_checkout"),
    "tasks": (TaskDoor, "over_tasks"),
    "celery": (CeleryDoor, "over_celery"),
}
