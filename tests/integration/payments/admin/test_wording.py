"""What columns, advice and badges say is what they count and what is to do."""

from html import unescape
from typing import Any

from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from payments.models import Anomaly, Attempt, Delivery
from tests.integration.payments.conftest import OpenAttempt, fold, letter, refunded
from tests.payments_settings import changed

LISTS = "/admin/payments/"
CHINESE = {"Accept-Language": "zh-CN"}


def page_of(client: Client, row: Any, **headers: str) -> str:
    return client.get(f"{LISTS}{row._meta.model_name}/{row.pk}/change/", headers=headers).text


def test_advice_about_an_anomaly_ends_with_its_matter(admin_client: Client, open_attempt: OpenAttempt) -> None:
    for _ in range(2):
        letter(open_attempt(), charged_minor=5).send()
    anomaly, by_hand = Anomaly.objects.order_by("pk")
    assert "See that the refund ends" in page_of(admin_client, anomaly)
    back = anomaly.refund
    fold(refunded(back.attempt, back.amount_minor, back.out_refund_no), source="refund")
    shown = page_of(admin_client, anomaly)
    assert ("Nothing to do: refunded." in shown, "See that the refund ends" in shown) == (True, False)
    assert "无需处理，已退款。" in page_of(admin_client, anomaly, **CHINESE)
    admin_client.post(f"{LISTS}anomaly/{by_hand.pk}/resolve/", {"reason": "settled by hand"})
    assert "Nothing to do: resolved." in page_of(admin_client, by_hand)


def test_a_delivery_that_failed_is_no_fresh_one(
    admin_client: Client, open_attempt: OpenAttempt, settings: Any
) -> None:
    endpoint = {"URL": "http://127.0.0.1:1", "SECRETS": "whsec_" + "A" * 32}
    settings.PAYMENTS = changed(WEBHOOKS={"books": endpoint})
    letter(open_attempt()).send()
    answers: list[str | None]
    for answers, badge in (
        ([], "payments-wait>waiting"),
        (["answered 204"], "payments-wait>waiting"),  # sent again by hand
        (["answered 500"], "payments-doubt>will retry"),
        (["answered 204", "timed out", None], "payments-doubt>will retry"),
    ):
        tries = [{"at": "2026-01-01T00:00:00+00:00"} | ({"answer": one} if one else {}) for one in answers]
        Delivery.objects.update(log=tries, attempts=len(tries))
        for shown in (admin_client.get(f"{LISTS}delivery/").text, page_of(admin_client, Delivery.objects.get())):
            assert badge in shown.replace('"', "")


def test_a_calls_error_has_a_sentence_beside_it(admin_client: Client, open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    for stored, sentence in (
        ("OutcomeUnknown: 127.0.0.1 answered 500", "对方返回错误，结果未知"),
        ("127.0.0.1 cannot be reached: ConnectError", "无法连接对方，请求未送达"),
        ("no answer from 127.0.0.1: ReadTimeout", "对方未响应，结果未知"),
    ):
        Attempt.objects.update(message=stored)
        assert f"{sentence} ({stored})" in page_of(admin_client, attempt, **CHINESE)


def test_an_empty_list_says_what_appears_there(admin_client: Client) -> None:
    for own in (one for one in site._registry.values() if one.opts.app_label in {"payments", "idempotency"}):
        address = reverse(f"admin:{own.opts.app_label}_{own.opts.model_name}_changelist")
        assert own.appears, address
        assert f"Nothing here at the moment. {own.appears}" in unescape(admin_client.get(address).text)
    with override("zh-hans"):
        assert f"暂无记录。 {own.appears}" in admin_client.get(address, headers=CHINESE).text
    assert "Nothing matches this search and these filters." in admin_client.get(f"{address}?q=x").text
