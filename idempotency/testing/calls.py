"""Copies of a request, each under a key, and how to send them."""

from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client

from idempotency.response.answers import rendered

READ = frozenset({"_body", "_post", "_files", "idempotency"})  # what is left of an earlier reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Senders:
    """Ways to send copies: to a view, or by a client to its address. Threads may use them at once.

    Attributes:
        header: name of the header with the key.
        post: further arguments of the client's `post`.
    """

    view: Any
    client: Client
    header: str
    post: dict[str, Any]

    def sender(self, request: Any, *, key: str) -> Callable[[], Any]:
        """Return a function that sends a copy of `request` under `key` and returns the answer.

        Raises:
            TypeError: for a view: it is no request of a `RequestFactory`.
        """
        if isinstance(self.view, str):
            return lambda: self._post(request, key)
        if not isinstance(request, WSGIRequest):
            raise TypeError(
                f"Give a view and a request of RequestFactory, or an address and data, and not {request!r}."
            )
        return lambda: self._call(request, key)

    def _post(self, data: Any, key: str) -> Any:
        client = copy(self.client)
        client.cookies = deepcopy(self.client.cookies)
        headers = {**self.post.get("headers", {}), self.header: key}
        return client.post(self.view, data, **self.post | {"headers": headers})

    def _call(self, request: WSGIRequest, key: str) -> Any:
        name = f"HTTP_{self.header.upper().replace('-', '_')}"
        fresh = WSGIRequest({**request.environ, "wsgi.input": BytesIO(request.body), name: key})
        for attribute, value in vars(request).items():  # such as its user, and what REST framework's factory sets
            if attribute not in READ and not hasattr(fresh, attribute):
                setattr(fresh, attribute, value)
        fresh.resolver_match = request.resolver_match
        view = async_to_sync(self.view) if iscoroutinefunction(self.view) else self.view
        return rendered(view(fresh))
