"""The API answers whatever its own description allows as the description promises.

What is sent follows from the description and from constants of the code that is loaded, not from chance: the same
run again sends the same.
"""

import contextlib
import itertools
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from rest_framework.authtoken.models import Token
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from shop.models import Order, Product
from shop.orders.lifecycle import cancel
from shop.orders.placing import create_order
from shop.wsgi import application

EXAMPLES = 4  # of each call; every other one is about what is there
WRONG_EXAMPLES = 2
PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
QUICKLY = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def caller(transactional_db: None) -> dict[str, str]:
    """Headers of a user who may buy a mug, and has an open and a closed order."""
    user = User.objects.create_user("reader")
    Product.objects.create(sku="mug", name="Mug", price_minor=1990, currency="CNY", stock=100_000)
    with transaction.atomic():
        orders = [create_order(user_id=user.pk, quantities={"mug": 1}) for _ in range(2)]
    cancel(order_id=orders[0].id, user_id=user.pk)
    return {"Authorization": f"Token {Token.objects.create(user=user).key}"}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_as_described(caller: dict[str, str], mode: GenerationMode) -> None:
    pending, closed = Order.objects.order_by("status").values_list("id", flat=True).reverse()
    positive = mode is GenerationMode.POSITIVE
    statuses: set[int] = set()
    of_what_is_there = itertools.cycle([True, False] if positive else [False])

    for found in schemathesis.openapi.from_wsgi("/api/schema/?format=json", application).get_all_operations():
        operation = found.ok()
        if not positive and operation.method != "post" and not (operation.body or operation.query):
            continue  # any text is a path, and hypothesis searches long for one that is none

        @settings(QUICKLY, max_examples=EXAMPLES if positive else WRONG_EXAMPLES)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            if next(of_what_is_there):
                # the events of an order go on until nothing can happen to it any more
                order = closed if case.path.endswith("/events") else pending
                known = {"sku": "mug", "id": order.hex}
                case.path_parameters = {name: known.get(name, it) for name, it in case.path_parameters.items()}
            answer = case.call(headers=caller)
            case.validate_response(answer, checks=PROMISES)
            statuses.add(answer.status_code)

        # nothing can be sent wrong to the one call without parameters
        with contextlib.suppress(Unsatisfiable):
            check()
    assert ({200, 201, 204, 404} if positive else {400}) <= statuses, statuses
