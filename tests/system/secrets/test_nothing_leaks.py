"""F8: no key, card or payer in a log line, page, metric or answer.

The shop runs with its worker and the sandbox as processes, at LOG_LEVEL=DEBUG. Needles are the real values: of the
files and settings in use, and of the providers' own documents.
"""

import base64
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit
from uuid import uuid4

import httpx
import psycopg
import pytest

from payments.providers import registry, rsa
from payments.sandbox.stripe import documents as stripe_documents
from tests.conftest import a_folder_of_its_own
from tests.running import MUG, RunningShop, pay_as_shopper, until
from tests.system.secrets.scanner import Scanner, luhn, payer_needles, private_key_needles

CARD = "4242424242424242"
OPENID = "oUpF8uMuAJO_M2pxb1Q9zNjWeS6o"
CHANNELS = ("wechat", "alipay", "stripe")
PHONE = "203.0.113.77"  # its address
NOTHING: Mapping[str, str] = {}
RACED = ("alipay", "stripe")  # whose notifications name the payer in the clear
LOSES = "notification_once_per_id"  # the constraint that refuses the later of two copies
PURCHASES_MAX = 20
OBJECTS_MAX = 4  # of one model, the newest; every one of its lists' columns is read anyway


@dataclass(repr=False)
class Run:
    """What one eventful run left to read; a failed test must not print it.

    Attributes:
        log_needles: what pages show on purpose, and no log may.
    """

    shop: RunningShop
    scanner: Scanner
    answers: dict[str, str] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    log_needles: dict[str, str] = field(default_factory=dict)

    def logs(self) -> dict[str, str]:
        files = [*self.shop.folder.glob("*.log"), *(self.shop.folder / "logs").glob("*")]
        return {str(path.relative_to(self.shop.folder)): path.read_text(errors="replace") for path in files}


class Actor:
    """Uses the shop as shoppers, providers and strangers do, and keeps every answer."""

    def __init__(self, shop: RunningShop, token: str) -> None:
        self.shop = shop
        self.answers: dict[str, str] = {}
        self.keys: list[str] = []
        self.api = shop.api(token=token)
        self.stranger = httpx.Client(base_url=shop.url, trust_env=False)
        self.api.event_hooks = self.stranger.event_hooks = {"response": [self._keep]}
        self.sandbox = httpx.Client(base_url=shop.sandbox_url, trust_env=False)

    def _keep(self, response: httpx.Response) -> None:
        response.read()
        name = f"{len(self.answers)} {response.request.method} {response.request.url.path} {response.status_code}"
        self.answers[name] = f"{response.headers}\n{response.text}"

    def faults(self, **faults: Any) -> None:
        self.sandbox.post("/_control/faults", json=faults).raise_for_status()

    def post(self, path: str, body: dict[str, Any], *, headers: Mapping[str, str] = NOTHING) -> httpx.Response:
        self.keys.append(uuid4().hex)
        return self.api.post(f"/api/v1/{path}", json=body, headers={"Idempotency-Key": self.keys[-1], **headers})

    def open(self, channel: str, *, headers: Mapping[str, str] = NOTHING, **more: Any) -> httpx.Response:
        """Begin to pay for a new order of a mug."""
        order = self.post("orders", MUG).raise_for_status().json()["id"]
        return self.post(f"orders/{order}/payment", {"channel": channel, **more}, headers=headers)

    def pay(self, payment: dict[str, Any]) -> None:
        (attempt,) = payment["attempts"]
        pay_as_shopper(self.sandbox, attempt)

    def status(self, payment_id: str) -> str:
        return str(self.api.get(f"/api/v1/payments/{payment_id}").json()["status"])

    def buy(self, channel: str) -> dict[str, Any]:
        payment: dict[str, Any] = self.open(channel).raise_for_status().json()
        self.pay(payment)
        until(lambda: self.status(payment["id"]) == "succeeded")
        return payment

    def close(self) -> None:
        for client in (self.api, self.stranger, self.sandbox):
            client.close()


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with a_folder_of_its_own() as folder:
        log_everything = {
            "LOG_LEVEL": "DEBUG",
            "DJANGO_SETTINGS_MODULE": "tests.system.secrets.settings",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "TRUSTED_PROXIES": "127.0.0.1",
        }
        shop = RunningShop(folder, more=log_everything, first=True)
        try:
            yield an_eventful_run(shop, log_everything["SECRET_KEY"])
        finally:
            assert shop.stop() == 0


def an_eventful_run(shop: RunningShop, secret_key: str) -> Run:
    token = secrets.token_hex(20)
    with shop.database() as database:
        database.execute("UPDATE authtoken_token SET key = %s WHERE key = 'demo-token'", [token])
    actor = Actor(shop, token)
    needles = {
        "SECRET_KEY": secret_key,
        "the API token": token,
        "the card": CARD,
        "the openid that we were given": OPENID,
        "client_ip": PHONE,
        "a value in a statement": secrets.token_hex(12),
        **setting_needles(shop.folder / "sandbox"),
    }
    try:
        payments = [purchase_and_refund(actor, channel) for channel in CHANNELS]
        for channel in RACED:
            copies_at_once(actor, channel)
        h5_from_a_phone(actor)
        what_postgresql_refuses(shop, needles["a value in a statement"])
        trouble_with_the_provider(actor)
        strangers(actor)
        charge = a_card_elsewhere(actor)
        sessions, forms, pages = the_superuser_looks(shop)
        mistakes(actor, needles["a value in a statement"])
    finally:
        actor.close()
    settings = json.loads((shop.folder / "sandbox" / "settings.json").read_text())
    documents = [*what_providers_said(shop, settings), what_alipay_answers(shop, settings, payments), charge]
    payer = payer_needles(documents)
    said = {"openid", "buyer_id", "buyer_logon_id", "client_secret", "email", "name", "fingerprint"}
    assert {name.split()[0] for name in payer} >= said
    known = [value for value in settings.values() if value.isdigit()]
    scanner = Scanner({**needles, **payer, **sessions}, known_numbers=known)
    keys = {f"Idempotency-Key {number}": key for number, key in enumerate(actor.keys)}
    return Run(shop, scanner, answers=actor.answers, pages=pages, log_needles={**forms, **keys})


def setting_needles(folder: Path) -> dict[str, str]:
    settings = json.loads((folder / "settings.json").read_text())
    secret = ("WECHAT_API_V3_KEY", "STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET")
    lines = private_key_needles(folder)
    assert len({name.split(",")[0] for name in lines}) >= 5, "the keys of both sides"
    return {**{name: settings[name] for name in secret}, **lines}


def purchase_and_refund(actor: Actor, channel: str) -> dict[str, Any]:
    payment = actor.buy(channel)
    refund = {"amount_minor": 990, "reason": "changed mind"}
    assert actor.post(f"payments/{payment['id']}/refunds", refund).status_code in {201, 202}
    until(lambda: actor.status(payment["id"]) == "partially_refunded")
    return payment


def copies_at_once(actor: Actor, channel: str) -> None:
    """Buy, with six copies of each notification at once, until PostgreSQL refuses a copy."""
    log = actor.shop.folder / "postgresql.log"
    before = log.read_text().count(LOSES)
    actor.faults(duplicates=6, parallel=6)
    for _ in range(PURCHASES_MAX):
        actor.buy(channel)
        until(lambda: not actor.sandbox.get("/_control/deliveries").json()["due"])
        if log.read_text().count(LOSES) > before:
            break
    else:
        raise AssertionError(f"no two copies of {channel} were ever at it together")
    actor.faults(duplicates=0, parallel=0)


def a_card_elsewhere(actor: Actor) -> Any:
    """Notify a charge that another system of the same account made by card."""
    settings = json.loads((actor.shop.folder / "sandbox" / "settings.json").read_text())
    ours = {"Authorization": f"Bearer {settings['STRIPE_SECRET_KEY']}"}
    intents = "/stripe/v1/payment_intents"
    made = actor.sandbox.post(intents, data={"amount": "990", "currency": "cny"}, headers=ours).raise_for_status()
    number = made.json()["id"]
    actor.sandbox.post("/_control/pay", json={"out_trade_no": number}).raise_for_status()
    paid = actor.sandbox.get(f"{intents}/{number}", params={"expand[]": "latest_charge"}, headers=ours)
    charge = paid.raise_for_status().json()["latest_charge"]
    event = {"id": "evt_card", "object": "event", "type": "charge.succeeded", "livemode": False}
    body = json.dumps({**event, "data": {"object": charge}}).encode()
    secret = settings["STRIPE_WEBHOOK_SECRET"]
    header = stripe_documents.signature(body, secret=secret, timestamp=int(time.time()))
    answer = actor.stranger.post("/webhooks/stripe", content=body, headers={"Stripe-Signature": header})
    assert answer.status_code == 200
    return charge


def h5_from_a_phone(actor: Actor) -> None:
    """Open two payments with the shopper's address: one stays open, one is paid."""
    phone = {"X-Forwarded-For": PHONE}
    actor.faults(http_500_rate=1)
    actor.open("wechat", method="h5", headers=phone)
    with actor.shop.database() as database:
        kept = database.execute("SELECT payer FROM payments_attempt WHERE method = 'h5'").fetchall()
    assert kept == [({"client_ip": PHONE},)]
    actor.faults(http_500_rate=0)
    actor.pay(actor.open("wechat", method="h5", headers=phone).raise_for_status().json())


def what_postgresql_refuses(shop: RunningShop, value: str) -> None:
    """Make PostgreSQL refuse statements with `value` in their text, in each way."""
    with shop.database() as database, psycopg.ClientCursor(database) as cursor:
        cursor.execute("CREATE TEMPORARY TABLE planted (value text UNIQUE CHECK (value NOT LIKE '%-'))")
        cursor.execute("INSERT INTO planted VALUES (%s)", [value])
        for refused in (value, f"{value}-"):  # Key (value)=(…) already exists; Failing row contains (…)
            with pytest.raises(psycopg.IntegrityError):
                cursor.execute("INSERT INTO planted VALUES (%s)", [refused])
        cursor.execute("SET statement_timeout = '20ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            cursor.execute("SELECT pg_sleep(60), %s", [value])
    a_deadlock(shop, value)


def a_deadlock(shop: RunningShop, value: str) -> None:
    """Two sessions that wait for each other; PostgreSQL logs the statements of both."""
    barrier = threading.Barrier(2, timeout=30)

    def lock(first: int, second: int) -> bool:
        with shop.database() as database, psycopg.ClientCursor(database) as cursor:
            try:
                with database.transaction():
                    for number in (first, second):
                        cursor.execute("SELECT pg_advisory_xact_lock(%s), %s", [number, value])
                        if number == first:
                            barrier.wait()
            except psycopg.errors.DeadlockDetected:
                return True
        return False

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lock, (1, 2), (2, 1))) == [False, True]


def trouble_with_the_provider(actor: Actor) -> None:
    """Meet lost answers, answers of 500, a wrong amount and unknown certificates."""
    for channel in CHANNELS:
        actor.faults(timeout_after_success=1)
        actor.open(channel)
        actor.faults(timeout_after_success=0, http_500_rate=1)
        actor.open(channel)
        actor.faults(http_500_rate=0)
    payment = actor.buy("stripe")
    actor.faults(http_500_rate=1)
    actor.post(f"payments/{payment['id']}/refunds", {"amount_minor": 90, "reason": "late"})
    actor.faults(http_500_rate=0)
    actor.open("wechat", method="jsapi", openid=OPENID)
    for channel in CHANNELS:
        actor.faults(wrong_amount=True)
        payment = actor.open(channel).raise_for_status().json()
        actor.pay(payment)
        actor.faults(wrong_amount=False)
    actor.sandbox.post("/_control/rotate", json={"channel": "wechat"}).raise_for_status()
    actor.pay(actor.open("wechat").raise_for_status().json())


def strangers(actor: Actor) -> None:
    """Send webhooks with wrong signatures or bodies, each with a payer and a card inside."""
    form = f"buyer_id=2088102122458832&card={CARD}&sign_type=RSA2&sign=AAAA&notify_id=1"
    bodies = {
        "wechat": (json.dumps({"id": "1", "payer": {"openid": OPENID}, "card": CARD}), "application/json"),
        "alipay": (form, "application/x-www-form-urlencoded"),
        "stripe": (json.dumps({"id": "evt_1", "card": {"number": CARD}}), "application/json"),
    }
    headers = {
        "Wechatpay-Timestamp": "1700000000",
        "Wechatpay-Nonce": "n",
        "Wechatpay-Serial": "A" * 40,
        "Wechatpay-Signature": "AAAA",
        "Stripe-Signature": f"t=1700000000,v1={'a' * 64}",
    }
    for channel, (body, kind) in bodies.items():
        for sent in (body.encode(), b"\xff\xfe" + body.encode(), b""):
            answer = actor.stranger.post(
                f"/webhooks/{channel}", content=sent, headers={**headers, "Content-Type": kind}
            )
            assert answer.status_code in {200, 400, 401}


def mistakes(actor: Actor, value: str) -> None:
    """Callers who send what does not belong there, views that fail, addresses that are none."""
    for body in (f'{{"card": "{CARD}"', json.dumps({"items": [], "card": CARD}), json.dumps([CARD, OPENID])):
        actor.api.post(
            "/api/v1/orders",
            content=body,
            headers={"Idempotency-Key": uuid4().hex, "Content-Type": "application/json"},
        )
    for path in ("/failing", f"/nowhere/{uuid4().hex}", "/metrics", "/healthz", "/readyz", "/api/schema/"):
        actor.api.get(path)
    actor.api.get("/refused", headers={"X-Planted": value})
    for path in ("/failing", "/refused"):
        assert any(f" {path} 500" in name for name in actor.answers)
    actor.stranger.get("/api/v1/orders", headers={"Authorization": "Token 00"})
    actor.stranger.post("/accounts/login/", data={"username": "demo", "password": "demo"})


def the_superuser_looks(shop: RunningShop) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return needles of the session, needles of the forms, and every page of the admin."""
    with httpx.Client(base_url=shop.url, trust_env=False, follow_redirects=True) as client:
        form = client.get("/admin/login/")
        token = _csrf(form.text)
        login = {"username": "admin", "password": "admin", "csrfmiddlewaretoken": token, "next": "/admin/"}
        client.post("/admin/login/", data=login).raise_for_status()
        session = client.cookies["sessionid"]
        pages = crawl(client)
        needles = {"the session cookie": session, "the CSRF cookie": client.cookies["csrftoken"]}
        forms = {f"CSRF token of {path}": _csrf(page) for path, page in pages.items() if _csrf(page)}
        client.get("/failing")
    return needles, forms, pages


def crawl(client: httpx.Client) -> dict[str, str]:
    """Get every page under /admin/ that links lead to, of `OBJECTS_MAX` objects a model."""
    todo, pages = ["/admin/"], {}
    objects: dict[str, set[str]] = {}
    while todo:
        path = todo.pop(0)
        if path in pages or re.search("logout|password|jsi18n|/delete/|/add/", path):
            continue
        named = re.fullmatch(r"/admin/(\w+/\w+)/([^/]+)/.+", path)
        if named:
            seen = objects.setdefault(named[1], set())
            if len(seen) >= OBJECTS_MAX and named[2] not in seen:
                continue
            seen.add(named[2])
        answer = client.get(path)
        assert answer.status_code == 200, path
        if not answer.headers["Content-Type"].startswith("text/html"):
            continue
        pages[path] = answer.text
        links = (urlsplit(urljoin(path, link)) for link in re.findall(r'href="([^"#?]+)', answer.text))
        todo += [link.path for link in links if not link.netloc and link.path.startswith("/admin/")]
    return pages


def _csrf(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    return found.group(1) if found else ""


def what_providers_said(shop: RunningShop, settings: dict[str, str]) -> list[Any]:
    """The documents inside the notifications that were kept."""
    with shop.database() as database:
        rows = database.execute("SELECT channel, body FROM payments_notification").fetchall()
    assert {channel for channel, _ in rows} == set(CHANNELS)
    found: list[Any] = []
    for channel, body in rows:
        if channel == "alipay":
            found.append(dict(parse_qsl(bytes(body).decode())))
            continue
        document = json.loads(body)
        if channel == "wechat":
            sealed = document["resource"]
            plain = rsa.decrypt(
                sealed["ciphertext"],
                key=settings["WECHAT_API_V3_KEY"].encode(),
                nonce=sealed["nonce"].encode(),
                associated_data=sealed["associated_data"].encode(),
            )
            document = json.loads(plain)
        found.append(document)
    return found


def what_alipay_answers(shop: RunningShop, settings: dict[str, str], payments: list[dict[str, Any]]) -> Any:
    """Alipay's answers name the payer in another way than its notifications."""
    fields = {
        name.removeprefix("ALIPAY_"): value for name, value in settings.items() if name.startswith("ALIPAY_")
    }
    gateway = f"{shop.sandbox_url}/alipay/gateway.do"
    alipay: Any = registry.build({"alipay": {**fields, "GATEWAY_URL": gateway}})["alipay"]
    paid = next(each for payment in payments for each in payment["attempts"] if each["channel"] == "alipay")
    return alipay._call("alipay.trade.query", {"out_trade_no": paid["out_trade_no"]})


def test_the_scanner_finds_what_is_planted(run: Run) -> None:
    needles = run.scanner.needles
    log = min(run.logs().values(), key=len)
    page = next(text for path, text in run.pages.items() if "/payments/notification/" in path)
    planted = "\n".join(needles.values())
    for text in (f"{log}\n{planted}\n", page.replace("</body>", f"<p>{planted}</p></body>")):
        assert needles.keys() <= {found.needle for found in run.scanner.look("planted", text)}
    for needle, value in needles.items():
        assert run.scanner.look(needle, base64.b64encode(value.encode()).decode()), needle
    others = [
        "Authorization: Bearer sk_test_1",
        'WECHATPAY2-SHA256-RSA2048 mchid="1"',
        "5555 5555 5555 4444",
        "-----BEGIN PRIVATE KEY-----",
        "&quot;last4&quot;: &quot;4242&quot;",
    ]
    assert all(run.scanner.look("planted", f"a line\n{line}\n") for line in others)


def test_our_account_with_an_amount_after_it_is_no_card_number() -> None:
    merchant = "2088102146225135"
    amount = next(amount for amount in range(100, 1000) if luhn(f"{merchant}{amount}"))
    line = f"provider:alipay:{merchant} {amount} CNY"
    assert [found.needle for found in Scanner({}).look("line", line)] == ["a card number"]
    assert Scanner({}, known_numbers=[merchant]).look("line", line) == []


def test_no_log_line_of_any_process_has_a_secret(run: Run) -> None:
    logs = run.logs()
    assert {"run.log", "postgresql.log", "redis.log", "logs/worker.log", "logs/sandbox.log"} <= logs.keys()
    web = next(text for name, text in logs.items() if name.startswith("logs/web-"))
    assert '"level": "debug"' in web
    assert "nobody expected this" in web
    assert "notification refused" in web
    assert LOSES in logs["postgresql.log"]
    assert "deadlock detected" in logs["postgresql.log"]
    everything = Scanner({**run.scanner.needles, **run.log_needles}, known_numbers=run.scanner.known_numbers)
    assert [found for name, text in logs.items() for found in everything.look(name, text)] == []


def test_no_page_of_the_admin_shows_a_secret(run: Run) -> None:
    for model in ("payment", "attempt", "refund", "notification", "observation", "anomaly"):
        assert any(re.search(rf"/payments/{model}/[^/]+/change/", path) for path in run.pages), model
    assert any("billing_details" in page for page in run.pages.values())
    assert [found for path, page in run.pages.items() for found in run.scanner.look(path, page)] == []


def test_no_answer_or_error_page_has_a_secret(run: Run) -> None:
    """Only answers to strangers and programs are here, who get no cookie."""
    assert [found for name, text in run.answers.items() for found in run.scanner.look(name, text)] == []
    assert "payonce_notifications_refused_total" in next(
        text for name, text in run.answers.items() if " /metrics " in name
    )
