"""The measured ways to serve one keyed POST: ours, the bare views, and peers."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

# the place of the key in headers and body: a random UUID's form, which some peers ask for
KEY = "00000000-0000-4000-8000-000000000000"
SHOP = "shop"
SHOP_TOKEN = secrets.token_hex(20)
PLAIN_HEADERS = {"X-User": "1"}
SHOP_HEADERS = {"Authorization": f"Token {SHOP_TOKEN}"}
SHOP_BODY = json.dumps({"items": [{"sku": "bench-mug", "quantity": 1}]})


@dataclass(frozen=True, slots=True)
class Peer:
    """A package with a venv of its own; constraints.txt must not pin the `unpinned`."""

    name: str
    requirements: tuple[str, ...]
    unpinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to serve the same request.

    Attributes:
        title: in the tables.
        setup: one server for each; BENCH_SETUP of its settings, or `SHOP`.
        path: of the POST.
        base: title of the variant without a key; None for such a variant.
        peer: its venv; None for ours.
        replays: every request carries one key that has its answer already.
        has_faults: the faults are tried on it too.
    """

    title: str
    setup: str
    path: str = "/keyed"
    base: str | None = "bare view"
    peer: Peer | None = None
    replays: bool = False
    has_faults: bool = False

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the POST; `KEY` stands for the key."""
        caller = SHOP_HEADERS if self.setup == SHOP else PLAIN_HEADERS
        return {**caller, "Content-Type": "application/json", "Idempotency-Key": KEY}

    @property
    def body(self) -> str:
        """JSON of the POST; `KEY` stands for the key."""
        return SHOP_BODY if self.setup == SHOP else json.dumps({"reference": KEY, "amount": 1990})


def _peer(name: str, *requirements: str, unpinned: tuple[str, ...] = ()) -> Peer:
    common = ("djangorestframework", "redis", "Django>=5.2,<5.3", "gunicorn", "psycopg[binary]")
    return Peer(name, (*requirements, *common), unpinned)


DJANGO_IDEMPOTENCY_KEY = _peer("django-idempotency-key", "django-idempotency-key", "django-redis")
DRF_IDEMPOTENCY = _peer("drf-idempotency", "drf-idempotency[redis]", "django-redis")
POWERTOOLS = _peer(
    *("aws-lambda-powertools", "aws-lambda-powertools[redis]", "boto3", "jmespath"),
    unpinned=("python-dateutil", "urllib3"),
)


VARIANTS = (
    Variant("bare view", "bare", "/bare", base=None, has_faults=True),
    # the same server once more: the distance of two measurements of one thing
    Variant("bare view again", "bare", "/bare"),
    Variant("a view that does nothing", "ours", "/idle"),  # what a replay would have if a key cost nothing
    Variant("PayOnce, Redis", "ours", has_faults=True),
    Variant("PayOnce, no Redis", "ours-no-redis", has_faults=True),
    Variant("PayOnce, phased, Redis", "ours", "/phased", has_faults=True),
    Variant("PayOnce, Redis, replay", "ours", replays=True),
    Variant("PayOnce, no Redis, replay", "ours-no-redis", replays=True),
    Variant("bare view, sessions", "bare-sessions", "/bare", base=None),
    Variant("PayOnce, Redis, sessions", "ours-sessions", base="bare view, sessions"),
    Variant("drf-idempotency, Redis", "drf-idempotency-redis", peer=DRF_IDEMPOTENCY, has_faults=True),
    Variant("drf-idempotency, Redis, replay", "drf-idempotency-redis", peer=DRF_IDEMPOTENCY, replays=True),
    Variant("drf-idempotency, ATOMIC_REQUESTS", "drf-idempotency-atomic", peer=DRF_IDEMPOTENCY, has_faults=True),
    Variant("django-idempotency-key, thread lock", "thread-lock", peer=DJANGO_IDEMPOTENCY_KEY, has_faults=True),
    Variant(
        "django-idempotency-key, thread lock, replay", "thread-lock", peer=DJANGO_IDEMPOTENCY_KEY, replays=True
    ),
    Variant("django-idempotency-key, Redis lock", "redis-lock", peer=DJANGO_IDEMPOTENCY_KEY, has_faults=True),
    Variant("aws-lambda-powertools, Redis", "aws-lambda-powertools", peer=POWERTOOLS, has_faults=True),
    Variant("an order of the shop, no key", SHOP, "/api/bare/orders", base=None),
    Variant("an order of the shop, Redis", SHOP, "/api/v1/orders", base="an order of the shop, no key"),
)
