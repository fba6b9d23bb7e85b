"""Doors of foreign projects: each leaves a note in its own way, and says alike what became of the call."""

import os
import signal
import subprocess
from typing import Any, Literal, NamedTuple

import httpx

from tests.foreign.foreign import ForeignProject, Guest, Server

REFUSALS: dict[str, "Outcome"] = {"idempotency_key_reused": "reused", "idempotency_in_progress": "running"}
SECONDS = 60

Outcome = Literal["done", "reused", "running", "died"]
User = Literal["ann", "bob"]


class Result(NamedTuple):
    """What became of a call: its outcome, what it gave back, and whether it said that this was stored before."""

    outcome: Outcome
    value: Any = None
    replayed: bool | None = None  # None: the door does not say


class Door:
    """A project's way of leaving a note, from many threads at once; its server is started again after each death."""

    def __init__(self, project: ForeignProject) -> None:
        self.project = project
        self.server = Server(project)

    def close(self) -> None:
        self.server.kill()

    def leave(self, text: str, *, key: str, user: User = "ann", copies: int = 1, dying: bool = False) -> Result:
        """Leave a note, as one of `copies` equal calls; a dying one loses its process after the commit."""
        headers = {"Idempotency-Key": key, **({"X-Die": "now"} if dying else {})}
        try:
            answer = self.send(text, user, headers)
        except httpx.TransportError:
            self.server.kill()
            self.server = Server(self.project)
            return Result("died")
        if answer.status_code >= 400:
            return Result(REFUSALS[answer.json()["code"]])
        return Result("done", self.value_of(answer, user), answer.headers.get("Idempotent-Replayed") == "true")

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        raise NotImplementedError

    def value_of(self, answer: httpx.Response, user: User) -> Any:
        return answer.json()

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=SECONDS, trust_env=False, **options)


class TokenDoor(Door):
    """A fresh JSON Web Token for each call."""

    def send(self, text: str, user: User, headers: dict[str, str]) -> httpx.Response:
        with self.client() as client:
            token = client.post("/tokens/", json={"user": user}).json()["token"]
            own = {"Authorization": f"Bearer {token}", **headers}
            return client.post("/notes/", json={"text": text}, headers=own)


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


class CeleryDoor(Door):
    """A view that waits for a task; the worker has four processes, and a dying call is the death of one of them."""

    def __init__(self, project: ForeignProject) -> None:
        super().__init__(project)
        command = ["-m", "celery", "-A", "doors.worker", "worker", "--concurrency", "4"]
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
        os.killpg(self._worker.pid, signal.SIGKILL)  # with its children
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
    "token": (TokenDoor, "over_tokens"),
    "checkout": (CheckoutDoor, "over_a_checkout"),
    "celery": (CeleryDoor, "over_celery"),
    "second alias": (TokenDoor, "over_a_second_alias"),
}
