"""What is measured: ours, the bare views, and the packages that a user of Django would pick instead."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A package of others, installed into a venv of its own.

    Attributes:
        name: on the registry; also the venv's name.
        requirements: what pip installs.
        unpinned: names that constraints.txt must not pin, because the package needs other versions.
    """

    name: str
    requirements: tuple[str, ...]
    unpinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to serve the same request.

    Attributes:
        title: in the tables.
        setup: BENCH_SETUP of its settings.
        path: where it is posted.
        peer: whose venv serves it; None for ours.
        baseline: title of the bare view that it is compared with: the one under the same framework and server.
        replays: every request carries one key that has its answer already.
        asgi: served by uvicorn's workers.
        is_bare: no key; only a base of comparison.
        thin: without the middleware that `startproject` puts around every view.
    """

    title: str
    setup: str
    path: str = "/keyed"
    peer: Peer | None = None
    baseline: str = "bare view"
    replays: bool = False
    asgi: bool = False
    is_bare: bool = False
    thin: bool = False

    @property
    def slug(self) -> str:
        """Names its database and its log."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.title.lower()).strip("_")


_SERVED = ("Django>=5.2,<5.3", "gunicorn", "psycopg[binary]")
_DRF = ("djangorestframework",)
_REDIS = ("redis", "django-redis")

DJANGO_IDEMPOTENCY_KEY = Peer("django-idempotency-key", ("django-idempotency-key", *_SERVED, *_DRF, *_REDIS))
DRF_IDEMPOTENCY = Peer("drf-idempotency", ("drf-idempotency[redis]", *_SERVED, *_DRF, *_REDIS))
DJANGORESTFRAMEWORK_IDEMPOTENCY_KEY = Peer(
    "djangorestframework-idempotency-key", ("djangorestframework-idempotency-key", *_SERVED, *_DRF)
)
DRF_IDEMPOTENCYKEY = Peer("drf-idempotencykey", ("drf-idempotencykey", *_SERVED, *_DRF))
POWERTOOLS = Peer(
    "aws-lambda-powertools",
    ("aws-lambda-powertools[redis]", "boto3", "jmespath", *_SERVED),
    unpinned=("python-dateutil", "urllib3"),
)
ASGI_HEADER = Peer(
    "asgi-idempotency-header",
    ("asgi-idempotency-header[fastapi,redis]", "uvicorn", "uvicorn-worker", "psycopg-pool", *_SERVED),
    unpinned=("redis", "django-redis", "typing_extensions", "anyio"),
)

BARE = Variant("bare view", "bare", "/bare", is_bare=True)
# the same server once more: how far two measurements of one thing lie apart
CONTROL = Variant("bare view against itself", "bare", "/bare", is_bare=True)
BARE_DRF = Variant("bare DRF view", "bare-drf", peer=DRF_IDEMPOTENCYKEY, is_bare=True)
BARE_ASGI = Variant("bare view, ASGI", "bare-asgi", "/bare", peer=ASGI_HEADER, asgi=True, is_bare=True)
OURS = (
    Variant("PayOnce, fresh, Redis", "ours"),
    Variant("PayOnce, fresh, no Redis", "ours-no-redis"),
    Variant("PayOnce, replay from Redis", "ours", replays=True),
    Variant("PayOnce, replay from the ledger", "ours-no-redis", replays=True),
    Variant("PayOnce, phased, fresh", "ours", "/phased"),
)
# what is left of a request when everything else of Django is taken away: the dearest the key can look
BARE_THIN = Variant("bare view, no middleware", "bare", "/bare", is_bare=True, thin=True)
OURS_THIN = (
    Variant("PayOnce, fresh, Redis, no middleware", "ours", baseline=BARE_THIN.title, thin=True),
    Variant("PayOnce, fresh, no Redis, no middleware", "ours-no-redis", baseline=BARE_THIN.title, thin=True),
)
PEERS = (
    Variant("django-idempotency-key, thread lock", "django-idempotency-key-thread", peer=DJANGO_IDEMPOTENCY_KEY),
    Variant("django-idempotency-key, Redis lock", "django-idempotency-key-redis", peer=DJANGO_IDEMPOTENCY_KEY),
    Variant("drf-idempotency, Redis", "drf-idempotency-redis", peer=DRF_IDEMPOTENCY),
    Variant("drf-idempotency, database", "drf-idempotency-database", peer=DRF_IDEMPOTENCY),
    Variant("drf-idempotency, database, ATOMIC_REQUESTS", "drf-idempotency-database-atomic", peer=DRF_IDEMPOTENCY),
    Variant("aws-lambda-powertools, Redis", "aws-lambda-powertools", peer=POWERTOOLS),
    Variant(
        "djangorestframework-idempotency-key",
        "djangorestframework-idempotency-key",
        peer=DJANGORESTFRAMEWORK_IDEMPOTENCY_KEY,
        baseline=BARE_DRF.title,
    ),
    Variant("drf-idempotencykey", "drf-idempotencykey", peer=DRF_IDEMPOTENCYKEY, baseline=BARE_DRF.title),
    Variant(
        "drf-idempotencykey, ATOMIC_REQUESTS",
        "drf-idempotencykey-atomic",
        peer=DRF_IDEMPOTENCYKEY,
        baseline=BARE_DRF.title,
    ),
    Variant(
        "asgi-idempotency-header",
        "asgi-idempotency-header",
        peer=ASGI_HEADER,
        baseline=BARE_ASGI.title,
        asgi=True,
    ),
)
