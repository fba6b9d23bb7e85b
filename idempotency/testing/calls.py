"""Copies of a request, each under a key, and how to send them."""

from collections.abc import Callable
from copy import copy, deepcopy
from io import BytesIO, IOBase
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client

from idempotency.response.answers import rendered

READ = frozenset({"_body", "_post", "_files", "idempotency"})  # what is left of an earlier reading


def sender(
    view: Any, request: Any, *, key: str, header: str, client: Client, post: dict[str, Any]
) -> Callable[[], Any]:
    """Make a function, for any thread, that sends a copy of `request` to a view or an address.

    Args:
        header: name of the header with the key.
        post: further arguments of the client's `post`.

    Raises:
        TypeError: for a view: it is no request of a `RequestFactory`.
    """
    if isinstance(view, str):
        options = {**post, "headers": {**post.get("headers", {}), header: key}}
        data = {name: _in_memory(value) for name, value in request.items()} if type(request) is dict else request
        return lambda: _post(client, view, deepcopy(data), options)
    if not isinstance(request, WSGIRequest):
        raise TypeError(
            f"Give a view and a request of RequestFactory, or an address and data, and not {request!r}."
        )
    return lambda: _call(view, request, {f"HTTP_{header.upper().replace('-', '_')}": key})


def _in_memory(value: Any) -> Any:
    """Read an open file, for each copy is to send the whole of it."""
    if isinstance(value, list):
        return [_in_memory(each) for each in value]
    if not isinstance(value, IOBase):
        return value
    value.seek(0)
    return SimpleUploadedFile(getattr(value, "name", "file"), value.read())


def _post(shared: Client, address: str, data: Any, options: dict[str, Any]) -> Any:
    client = copy(shared)
    client.cookies = deepcopy(shared.cookies)
    return client.post(address, data, **options)


def _call(view: Any, request: WSGIRequest, header: dict[str, str]) -> Any:
    fresh = WSGIRequest({**request.environ, "wsgi.input": BytesIO(request.body), **header})
    for attribute, value in vars(request).items():  # such as its user, and what REST framework's factory sets
        if attribute not in READ and not hasattr(fresh, attribute):
            setattr(fresh, attribute, value)
    fresh.resolver_match = request.resolver_match
    return rendered((async_to_sync(view) if iscoroutinefunction(view) else view)(fresh))
