"""The case file of a payment shows the shopper's forms, which are calls under a key."""

from typing import Any

import pytest
from django.test import Client

from payments.models import Payment
from shop.models import Order
from tests.integration.shop.web.test_pages import form_of, pay
from tests.running import until


@pytest.mark.usefixtures("channels")
def test_each_form_is_in_the_history_with_its_answer(shopper: Client, admin_client: Client, order: Order) -> None:
    number = order.id.hex
    page, stop = f"/orders/{number}", f"/orders/{number}/cancel"
    fields, late = (form_of(shopper.get(page), f"{page}/pay") for _ in range(2))
    for _ in range(2):
        pay(shopper, order, "wechat", fields)
    shopper.post(stop, form_of(shopper.get(stop), stop))
    pay(shopper, order, "wechat", late)
    address = f"/admin/payments/payment/{Payment.objects.get().pk}/case.json"

    def forms() -> list[Any]:
        history = admin_client.get(address).json()["history"]
        calls = [one for one in history if one["what"].startswith("form")]
        return [
            (one["what"].removeprefix("form, by one-time token, "), one["remark"].partition("; ")[0])
            for one in calls
        ]

    until(lambda: len(forms()) == 5)
    assert forms() == [
        ("POST /products/{sku}/buy: done", f"answered 302: {page}"),
        ("POST /orders/{order_id}/pay: done", f"answered 302: {page}"),
        ("POST /orders/{order_id}/pay: got the first answer again", f"answered 302: {page}"),
        ("POST /orders/{order_id}/cancel: done", f"answered 302: {page}"),
        ("POST /orders/{order_id}/pay: refused, and so is every copy", "answered 409: This order is closed"),
    ]
