"""Shoppers who order, pay, cancel, refund, rush and draw, and never give a key up.

An answer that does not come, a 5xx, a 429 or "in progress" is asked for again under the same key, at the next web
process (row A18 of docs/guarantees.md), until there is one or the run ends.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.running import UNLIMITED
from tests.system.chaos.history import Answer, History, Intent
from tests.system.chaos.plan import Visit
from tests.system.chaos.stage import token

CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 4.0
BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.6)
PAID_SECONDS = 4.0  # a shopper looks for so long whether the payment has arrived

Plan = Iterator[Visit]


class Shop:
    """The web processes and the shopper's wallet, for any number of threads."""

    def __init__(
        self, urls: list[str], sandbox_url: str, history: History, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> None:
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS)
        self.history = history
        self.ended = threading.Event()
        self._webs = [
            httpx.Client(base_url=url, timeout=timeout, limits=UNLIMITED, trust_env=False) for url in urls
        ]
        self._wallet = httpx.Client(base_url=sandbox_url, timeout=timeout, trust_env=False)
        self._copies = ThreadPoolExecutor(max_workers=24, thread_name_prefix="copies")

    def close(self) -> None:
        self._copies.shutdown(wait=True)
        for client in (*self._webs, self._wallet):
            client.close()

    def send(self, intent: Intent, *, web: int) -> Answer:
        """One copy of the request to one web process; what it heard."""
        began = self.history.now()
        web %= len(self._webs)
        headers = {"Authorization": f"Token {token(intent.user)}"}
        if intent.key:
            headers["Idempotency-Key"] = intent.key
        method = "POST" if intent.key else "PUT"
        heard: dict[str, Any]
        try:
            response = self._webs[web].request(method, intent.path, json=intent.body, headers=headers)
            heard = {"status": response.status_code, "code": _code(response), "body": response.content}
            heard["replayed"] = "Idempotent-Replayed" in response.headers
        except httpx.HTTPError as error:
            heard = {"status": 0, "code": type(error).__name__}
        now = self.history.now()
        return self.history.add(intent, Answer(at=now, seconds=now - began, web=web, **heard))

    def ask(self, intent: Intent, *, web: int, copies: int = 1) -> Answer | None:
        """Send it, in `copies` at once, until it is answered; None: the run ended first."""
        if copies > 1:
            duplicates = [
                self._copies.submit(self._until_answered, intent, web + other) for other in range(copies)
            ]
            answers = [duplicate.result() for duplicate in duplicates]
            return next((answer for answer in answers if answer is not None), None)
        return self._until_answered(intent, web)

    def aside(self, *works: Callable[[], Any]) -> list[Any]:
        """Do them at the same instant; what they returned."""
        futures: list[Future[Any]] = [self._copies.submit(work) for work in works]
        wait(futures)
        return [future.result() for future in futures]

    def read(self, path: str, *, user: int, web: int) -> Any:
        """A document, or None if that web process does not give it now."""
        try:
            response = self._webs[web % len(self._webs)].get(
                path, headers={"Authorization": f"Token {token(user)}"}
            )
        except httpx.HTTPError:
            self.history.count(0)
            return None
        self.history.count(response.status_code)
        return response.json() if response.status_code == 200 else None

    def pay(self, attempt: dict[str, Any]) -> bool:
        """Pay as the shopper, with the wallet; return whether it showed the charge."""
        try:
            action = attempt["next_action"]
            if action is not None and action["type"] == "redirect":
                address = urlsplit(action["url"])  # through the shopper's own network, not through a wire of ours
                self._wallet.get(f"{address.path}?{address.query}")
            answer = self._wallet.post("/_control/pay", json={"out_trade_no": attempt["out_trade_no"]})
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def _until_answered(self, intent: Intent, web: int) -> Answer | None:
        for tried in range(10**6):
            answer = self.send(intent, web=web + tried)
            if answer.is_final:
                return answer
            if self.ended.wait(BACK_OFF_SECONDS[min(tried, len(BACK_OFF_SECONDS) - 1)]):
                return None
        return None


class Shopper:
    """One client: visit after visit, as planned.

    Args:
        name: number of the client; keys carry it.
    """

    def __init__(self, shop: Shop, name: str) -> None:
        self._shop = shop
        self._name = name
        self._made = 0

    def run(self, plan: Plan) -> None:
        """Until the run ends."""
        kinds = {"buy": self._buy, "flash": self._flash, "coupon": self._coupon, "like": self._like}
        for visit in plan:
            if self._shop.ended.is_set():
                return
            kinds[visit.kind](visit)

    def order(self, visit: Visit) -> str:
        """Place an order; its id, or empty."""
        intent = self.intent("order", visit, "/api/v1/orders")
        items = [{"sku": sku, "quantity": quantity} for sku, quantity in visit.items]
        intent.body = {"items": items, "note": intent.key}
        return self._id(self._shop.ask(intent, web=visit.web, copies=visit.copies))

    def begin_payment(self, visit: Visit, order_id: str, channel: str) -> dict[str, Any]:
        """Begin to pay by a channel; the attempt to be paid, or nothing."""
        intent = self.intent("pay", visit, f"/api/v1/orders/{order_id}/payment", about=order_id)
        intent.body = {"channel": channel}
        answer = self._shop.ask(intent, web=visit.web + 1, copies=visit.copies)
        attempts = answer.document["attempts"] if answer is not None and answer.is_effect else []
        return next((attempt for attempt in reversed(attempts) if attempt["channel"] == channel), {})

    def cancel(self, visit: Visit, order_id: str) -> None:
        intent = self.intent("cancel", visit, f"/api/v1/orders/{order_id}/cancel", about=order_id)
        self._shop.ask(intent, web=visit.web, copies=visit.copies)

    def refund(self, visit: Visit, payment: dict[str, Any], *, part: int, web: int) -> None:
        """Ask for so many hundredths of the price back."""
        intent = self.intent("refund", visit, f"/api/v1/payments/{payment['id']}/refunds", about=payment["id"])
        amount_minor = max(1, payment["amount"]["amount_minor"] * part // 100)
        intent.body = {"amount_minor": amount_minor, "reason": intent.key}
        self._shop.ask(intent, web=web, copies=visit.copies)

    def paid(self, visit: Visit, order_id: str) -> dict[str, Any]:
        """Look until the order is paid; its payment, or nothing."""
        deadline = time.monotonic() + PAID_SECONDS
        while time.monotonic() < deadline and not self._shop.ended.is_set():
            order = self._shop.read(f"/api/v1/orders/{order_id}", user=visit.user, web=visit.web)
            if order is not None and order["status"] != "pending":
                payment = order["payment"] and self._shop.read(
                    f"/api/v1/payments/{order['payment']}", user=visit.user, web=visit.web + 1
                )
                return payment or {}
            time.sleep(0.1)
        return {}

    def _buy(self, visit: Visit) -> None:
        if order_id := self.order(visit):
            self._go_on(visit, order_id)

    def _flash(self, visit: Visit) -> None:
        intent = self.intent("flash", visit, "/api/v1/flash-sales/sneaker/orders")
        if order_id := self._id(self._shop.ask(intent, web=visit.web, copies=visit.copies)):
            self._go_on(visit, order_id)

    def _coupon(self, visit: Visit) -> None:
        intent = self.intent("coupon", visit, "/api/v1/coupons/welcome/draw")
        self._shop.ask(intent, web=visit.web, copies=visit.copies)

    def _like(self, visit: Visit) -> None:
        intent = Intent(kind="like", user=visit.user, key="", path="/api/v1/products/mug/like", about="mug")
        self._shop.ask(self._shop.history.begin(intent), web=visit.web, copies=visit.copies)

    def _go_on(self, visit: Visit, order_id: str) -> None:
        attempts = [self.begin_payment(visit, order_id, channel) for channel in visit.channels]
        paying = [attempt for attempt, pays in zip(attempts, visit.pays, strict=True) if pays and attempt]
        works: list[Callable[[], Any]] = [lambda attempt=attempt: self._shop.pay(attempt) for attempt in paying]
        if visit.ending == "cancel" and visit.at_once:
            works.append(lambda: self.cancel(visit, order_id))
        if works:
            self._shop.aside(*works)
        if visit.ending == "cancel" and not visit.at_once:
            self.cancel(visit, order_id)
        if visit.ending == "refund" and paying and (payment := self.paid(visit, order_id)):
            self._refunds(visit, payment)

    def _refunds(self, visit: Visit, payment: dict[str, Any]) -> None:
        works = [
            lambda part=part, web=visit.web + other: self.refund(visit, payment, part=part, web=web)
            for other, part in enumerate(visit.parts)
        ]
        if visit.at_once:
            self._shop.aside(*works)
            return
        for work in works:
            work()

    def intent(self, kind: str, visit: Visit, path: str, *, about: str = "") -> Intent:
        """A new wish, under a key of its own."""
        self._made += 1
        key = f"{self._name}-{self._made}-{random.randrange(16**6):06x}"
        intent = Intent(kind=kind, user=visit.user, key=key, path=path, about=about)
        return self._shop.history.begin(intent)

    def _id(self, answer: Answer | None) -> str:
        return str(answer.document["id"]) if answer is not None and answer.is_effect else ""


@contextmanager
def shopping(shop: Shop, plans: list[Plan]) -> Iterator[None]:
    """As many shoppers as plans, until the block ends; what one of them raised is raised here."""
    with ThreadPoolExecutor(max_workers=len(plans), thread_name_prefix="shopper") as pool:
        runs = [pool.submit(Shopper(shop, f"c{index}").run, plan) for index, plan in enumerate(plans)]
        try:
            yield
        finally:
            shop.ended.set()
    for run in runs:
        run.result()


def _code(response: httpx.Response) -> str:
    """Of a problem document."""
    if response.status_code < 400:
        return ""
    try:
        return str(response.json().get("code", ""))
    except (json.JSONDecodeError, AttributeError):
        return ""
