"""The measured ways to serve a keyed request: ours, the bare views, and the packages that a user would pick."""

from dataclasses import dataclass


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
        setup: BENCH_SETUP of its settings.
        path: of the POST.
        peer: its venv; None for ours.
        replays: every request carries one key that has its answer already.
    """

    title: str
    setup: str
    path: str = "/keyed"
    peer: Peer | None = None
    replays: bool = False

    @property
    def is_bare(self) -> bool:
        """No key: only a base of comparison."""
        return self.setup.startswith("bare")

    @property
    def slug(self) -> str:
        """Name of its database and its log."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.title.lower()).strip("_")


def _peer(name: str, *requirements: str, unpinned: tuple[str, ...] = ()) -> Peer:
    return Peer(name, (*requirements, "Django>=5.2,<5.3", "gunicorn", "psycopg[binary]"), unpinned)


_DRF = "djangorestframework"
_REDIS = ("redis", "django-redis")
DJANGO_IDEMPOTENCY_KEY = _peer("django-idempotency-key", "django-idempotency-key", _DRF, *_REDIS)
DRF_IDEMPOTENCY = _peer("drf-idempotency", "drf-idempotency[redis]", _DRF, *_REDIS)
POWERTOOLS = _peer(
    *("aws-lambda-powertools", "aws-lambda-powertools[redis]", "boto3", "jmespath"),
    unpinned=("python-dateutil", "urllib3"),
)

BARE = Variant("bare view", "bare", "/bare")
# the same server once more: the distance between two measurements of one thing
CONTROL = Variant("bare view against itself", "bare", "/bare")
OURS = (
    Variant("PayOnce, fresh, Redis", "ours"),
    Variant("PayOnce, fresh, no Redis", "ours-no-redis"),
    Variant("PayOnce, replay from Redis", "ours", replays=True),
    Variant("PayOnce, replay from the ledger", "ours-no-redis", replays=True),
    Variant("PayOnce, phased, fresh", "ours", "/phased"),
)
PEERS = (
    Variant("django-idempotency-key, thread lock", "django-idempotency-key-thread", peer=DJANGO_IDEMPOTENCY_KEY),
    Variant("django-idempotency-key, Redis lock", "django-idempotency-key-redis", peer=DJANGO_IDEMPOTENCY_KEY),
    Variant("drf-idempotency, Redis", "drf-idempotency-redis", peer=DRF_IDEMPOTENCY),
    Variant("drf-idempotency, database", "drf-idempotency-database", peer=DRF_IDEMPOTENCY),
    Variant("drf-idempotency, database, ATOMIC_REQUESTS", "drf-idempotency-database-atomic", peer=DRF_IDEMPOTENCY),
    Variant("aws-lambda-powertools, Redis", "aws-lambda-powertools", peer=POWERTOOLS),
)
