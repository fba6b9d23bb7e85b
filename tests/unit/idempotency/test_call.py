"""What a handler asks of its call, by the name of a parameter."""

from functools import partial
from typing import Any

import pytest
from django.test import RequestFactory
from django.views.decorators.gzip import gzip_page

from idempotency.call import KeyedCall, call_of, takes_call, with_call


def plain(request: Any, call: KeyedCall) -> KeyedCall:
    return call


def by_keyword(request: Any, *, call: KeyedCall) -> KeyedCall:
    return call


async def asynchronous(request: Any, *, call: KeyedCall) -> KeyedCall:
    return call


def without(request: Any) -> str:
    call = str(request)
    return call.upper()


class View:
    def post(self, request: Any, call: KeyedCall) -> KeyedCall:
        return call


def test_a_parameter_of_that_name_is_found_through_decorators_and_a_local_variable_is_none() -> None:
    for handler in (plain, by_keyword, gzip_page(plain), partial(plain), View.post, View().post, asynchronous):
        assert takes_call(handler)
    assert not takes_call(without)
    assert with_call(without) is without
    assert not takes_call(print)


def test_a_request_that_is_no_keyed_call_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"no keyed call\. Put @idempotent on the view"):
        call_of(RequestFactory().post("/"))
