"""Settings from the environment alone (names: docs/reference/settings.md).

A mistake stops the start with a sentence that names the setting. Secrets have defaults with `DEBUG` on only, for
`make run` and tests, where demo logins may exist.
"""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import django
import environ
from csp import constants as csp
from django.core.exceptions import ImproperlyConfigured

from payments.providers import registry
from payments.providers.settings_fields import env_name
from shop.devserver import redis_url

BASE_DIR = Path(__file__).resolve().parent.parent

# a secret may hold a dollar sign: nothing in the environment names another variable
env = environ.Env()
env.ENVIRON = {name: value.replace("$", r"\$") for name, value in os.environ.items()}
env.escape_proxy = True

DEBUG = env.bool("DEBUG", default=False)

_MAIL_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_OF_A_TEMPLATE = re.compile(r"^\s*django-insecure-|change[-_ ]?me", re.IGNORECASE)
SECRET_LENGTH = 50
DEMO_SECRET_KEY = "demo-only-" + "0" * 54  # the same everywhere, hence refused with DEBUG off


def _check_secret(name: str, secret: str) -> None:
    _refuse_demo(name, secret)
    if len(secret) < SECRET_LENGTH:
        raise ImproperlyConfigured(f"{name} has {len(secret)} characters; at least {SECRET_LENGTH} are needed.")


def _refuse_demo(name: str, value: str) -> None:
    if DEBUG:
        return
    if value.strip().startswith("demo-only-"):
        raise ImproperlyConfigured(f"{name} still has its demo value; set it to random characters.")
    if _OF_A_TEMPLATE.search(value):
        raise ImproperlyConfigured(f"{name} still has a value from a template; set it to your own.")


def _required(name: str) -> str:
    value: str = env.str(name, default="")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set (`make run` sets it to the servers that it starts).")
    return value


def _count(name: str, *, default: int, most: int = 1_000_000) -> int:
    text: str = env.str(name, default=str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= most:
        raise ImproperlyConfigured(f"{name} must be a whole number from 1 to {most}, not {text!r}.")
    return int(text)


def _seconds(name: str, *, default: float, longest: float) -> float:
    text: str = env.str(name, default=str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= longest:
        raise ImproperlyConfigured(f"{name} must be a number of seconds from 0 to {longest:g}, not {text!r}.")
    return seconds


def _networks(name: str) -> list[Any]:
    text: str = env.str(name, default="")
    try:
        return [ip_network(part.strip()) for part in text.split(",")] if text else []
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{name} must be addresses or networks with commas between them: {error}."
        ) from None


def _web_address(name: str, text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close; a port that is none
        is_one = False
    if not is_one:
        raise ImproperlyConfigured(f"{name} must be an absolute http(s) address, not {text!r}.")
    return parts


def _mail_server(name: str) -> SplitResult:
    try:
        parts = urlsplit(str(env.str(name, default="")))
        is_one = not any(parts) or (parts.scheme in _MAIL_PORTS and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        is_one = False
    if not is_one:  # the address holds a password
        raise ImproperlyConfigured(
            f"{name} must be as smtp+tls://user:password@host:587, user and password quoted."
        )
    return parts


def _log_level(name: str) -> str:
    level: str = env.str(name, default="INFO").upper()
    if level not in _LOG_LEVELS:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(_LOG_LEVELS)}, not {level!r}.")
    return level


SECRET_KEY = env.str("SECRET_KEY", default=DEMO_SECRET_KEY if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured(f"SECRET_KEY is not set; set it to at least {SECRET_LENGTH} random characters.")
_check_secret("SECRET_KEY", SECRET_KEY)
# a former key signs as well as the current one, so it must be as hard to guess
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
for _fallback in SECRET_KEY_FALLBACKS:
    _check_secret("SECRET_KEY_FALLBACKS", _fallback)

PUBLIC_URL = env.str("PUBLIC_URL", default="http://127.0.0.1:8000" if DEBUG else "").rstrip("/")
if not PUBLIC_URL:
    raise ImproperlyConfigured("PUBLIC_URL is not set; payment providers send their notifications to it.")
_public = _web_address("PUBLIC_URL", PUBLIC_URL)

ALLOWED_HOSTS = [host.strip() for host in env.list("ALLOWED_HOSTS", default=[])] or (
    ["127.0.0.1", "localhost", "[::1]", "testserver"] if DEBUG else []
)
# or every notification would be refused
ALLOWED_HOSTS.append(f"[{_public.hostname}]" if ":" in str(_public.hostname) else _public.hostname)
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]

DATA_DIR = Path(env.str("DATA_DIR", default=str(BASE_DIR / ".data")))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "procrastinate.contrib.django",
    "idempotency",
    "payments",
    "shop",
]

MIDDLEWARE = [
    "shop.platform.middleware.RequestIdMiddleware",
    "shop.platform.middleware.ProbesMiddleware",
    "shop.platform.middleware.HeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "shop.platform.middleware.BodyMiddleware",
    "shop.platform.middleware.WebhooksMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "shop.platform.sessions.GuestsMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "shop.platform.middleware.QueryMiddleware",
    "shop.web.rates.FormRateMiddleware",
    "idempotency.middleware.IdempotencyMiddleware",
    "shop.platform.middleware.DatabaseAwayMiddleware",
]

CSRF_FAILURE_VIEW = "shop.platform.fallbacks.csrf_refused"
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "shop" / "templates"],  # before those of Django's admin, the first app
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def _database() -> dict[str, Any]:
    url = _required("DATABASE_URL")
    try:
        config: dict[str, Any] = env.db_url_config(url)
        # a slash or question mark in the password ends what is taken for host and port
        cut_off = "@" in (config.get("NAME") or url.partition("?")[2])
    except ValueError:  # its message shows the URL
        cut_off = True
    if cut_off:
        raise ImproperlyConfigured(
            "DATABASE_URL cannot be read; percent-encode user and password, and see that the port is a number."
        )
    if config.get("ENGINE") != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must name a PostgreSQL database: postgresql://user@host/name.")
    options = config.setdefault("OPTIONS", {})
    options.setdefault("connect_timeout", 3)
    # so that no hung statement holds a row for ever; the ledger's own waits are far shorter
    options.setdefault("options", "-c statement_timeout=15000 -c idle_in_transaction_session_timeout=30000")
    config["CONN_MAX_AGE"] = 60
    config["ATOMIC_REQUESTS"] = False
    return config


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = _required("REDIS_URL")
try:
    CACHES = redis_url.caches(REDIS_URL)
except ValueError as error:
    raise ImproperlyConfigured(f"REDIS_URL {error}.") from None

SESSION_ENGINE = "shop.platform.sessions"  # in the database: a login must not hang on Redis

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "catalogue"
LOGOUT_REDIRECT_URL = "catalogue"

LANGUAGE_CODE = "en"
LOCALE_PATHS = [BASE_DIR / "shop" / "locale"]  # before those of Django's admin, the first app
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# receipts; without a mail server they are files under DATA_DIR with DEBUG, else none is sent
_mail = _mail_server("EMAIL_URL")
_mailer = f"django.core.mail.backends.{'smtp' if _mail.scheme else 'filebased' if DEBUG else 'dummy'}.EmailBackend"
_mail_options: dict[str, Any] = {"file_path": DATA_DIR / "mail"} if DEBUG else {}
if _mail.scheme:
    _mail_options = {
        "host": _mail.hostname or "",
        "port": _mail.port or _MAIL_PORTS[_mail.scheme],
        "username": unquote(_mail.username or ""),
        "password": unquote(_mail.password or ""),
        "use_tls": _mail.scheme == "smtp+tls",
        "use_ssl": _mail.scheme == "smtps",
        "timeout": 10,
    }
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _mailer, "OPTIONS": _mail_options}}
else:  # a setting for each
    EMAIL_BACKEND = _mailer
    _older = {"username": "EMAIL_HOST_USER", "password": "EMAIL_HOST_PASSWORD"}
    globals().update({_older.get(name, f"EMAIL_{name.upper()}"): value for name, value in _mail_options.items()})
EMAIL_DOMAIN = str(_public.hostname)
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default=f"PayOnce <noreply@{EMAIL_DOMAIN}>")

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = DEBUG
if not DEBUG:
    STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
    }

DATA_UPLOAD_MAX_MEMORY_SIZE = 262_144

# transport security: a PUBLIC_URL of https turns it on; plain http is for a machine's own loopback
_https = _public.scheme == "https"
SECURE_SSL_REDIRECT = _https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
# their X-Forwarded-For is believed (shop.platform.clientip)
TRUSTED_PROXIES = _networks("TRUSTED_PROXIES")
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
# for the domain's owner to decide: both bind other names too, and preloading takes months to undo
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("HSTS_SUBDOMAINS", default=False)
SECURE_HSTS_PRELOAD = env.bool("HSTS_PRELOAD", default=False)
if SECURE_HSTS_PRELOAD and not SECURE_HSTS_INCLUDE_SUBDOMAINS:
    raise ImproperlyConfigured("HSTS_PRELOAD needs HSTS_SUBDOMAINS too: browsers preload no domain without them.")
# the two that were chosen; a shop without a mail server sends no receipt
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021", "mail.E001"]
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_SECURE = _https
LANGUAGE_COOKIE_SECURE = _https
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"

# the sandbox's address where the channels point at it: pages then link to the shopper's pretended phone
SANDBOX_URL = env.str("SANDBOX_URL", default="").rstrip("/")

# nothing inline, nothing from elsewhere; a paying form redirects to the provider's page
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [csp.SELF],
        "object-src": [csp.NONE],
        "base-uri": [csp.NONE],
        "frame-ancestors": [csp.NONE],
        "form-action": [csp.SELF, "https:", *([SANDBOX_URL] if SANDBOX_URL else [])],
    },
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["shop.api.throttling.CallerThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["shop.platform.parsing.ShallowJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "idempotency.drf.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

# counted over all processes (shop.api.throttling); far above what a person or a sound program does
API_CALLS_PER_MINUTE = _count("API_CALLS_PER_MINUTE", default=60_000)
API_CALLS_PER_MINUTE_OVERALL = _count("API_CALLS_PER_MINUTE_OVERALL", default=600_000)

# of the pages (shop.web.rates): forms of one member, or of all guests of one address; passwords that were wrong
FORM_POSTS_PER_MINUTE = _count("FORM_POSTS_PER_MINUTE", default=600)
LOGIN_FAILURES_PER_NAME = _count("LOGIN_FAILURES_PER_NAME", default=10)
LOGIN_FAILURES_PER_ADDRESS = _count("LOGIN_FAILURES_PER_ADDRESS", default=60)

SPECTACULAR_SETTINGS = {
    "TITLE": "PayOnce API",
    "DESCRIPTION": "Orders and payments that happen exactly once.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": r"/api/v[0-9]+",
    "COMPONENT_SPLIT_PATCH": False,  # a PATCH requires its fields too
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "shop.api.schema.add_common_responses",
        "shop.api.schema.translate",
    ],
}

IDEMPOTENCY: dict[str, Any] = {
    "KEYED": ["/api/v1/"],
    "PROBLEM_TYPE_BASE": f"{PUBLIC_URL}/api/docs/problems#",
    "SUBJECT_ADMIN": {"order": "admin:shop_order_change", "payment": "admin:payments_payment_change"},
}
if redis_url.is_cluster(REDIS_URL):
    IDEMPOTENCY["REDIS_CLIENT"] = "shop.devserver.redis_url.cluster_client"
# answers at rest: "<key id>:<32 bytes in base64>" for each key, the one for new answers first
_body_keys = dict(entry.partition(":")[::2] for entry in env.list("IDEMPOTENCY_BODY_KEYS", default=[]))
if _body_keys:
    IDEMPOTENCY["BODY_KEYS"] = _body_keys

# the timers alone make 100,000 jobs a day; failed ones stay for a person (shop.tasks.clear_jobs)
PROCRASTINATE_WORKER_DEFAULTS = {"delete_jobs": "successful"}

ORDER_TTL_SECONDS = 1800
# life of the catalogue's page in a process's memory (shop.catalog.cache); 0: none
CATALOGUE_SECONDS = _seconds("CATALOGUE_SECONDS", default=1, longest=60)


def _channel(channel: str) -> dict[str, str]:
    """Read those of the channel's fields that are set, as WECHAT_API_URL; payments.checks names a missing one."""
    plugin = registry.plugin(channel, {})
    found: dict[str, str] = {}
    for field in (*plugin.required, *plugin.optional):
        name = env_name(channel, field)
        if value := env.str(name, default=""):
            _refuse_demo(name, value)
            found[field] = value
    return found


PAYMENTS = {
    "BASE_URL": PUBLIC_URL,
    "ORDER": "shop.orders.lifecycle",
    "EVENTS": "shop.orders.fulfilment.on_event",
    "WEBHOOKS": env.json("WEBHOOKS", default={}),
    "PROVIDERS": {channel: fields for channel in registry.names() if (fields := _channel(channel))},
    "LIMITS": {
        "CALLS": _count("PROVIDER_CALLS_MAX", default=32),
        "CALLS_PER_SECOND": _count("PROVIDER_CALLS_PER_SECOND", default=100),
        # a phased handler makes four calls at most, of 5 s each: with four waits it ends within its lease of 30 s
        "WAIT_SECONDS": _seconds("PROVIDER_WAIT_SECONDS", default=1, longest=2),
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "context": {"()": "idempotency.observability.logs.ContextFilter"},
        "refusals": {"()": "shop.platform.logs.RefusalFilter"},
    },
    "formatters": {"json": {"()": "shop.platform.logs.json_formatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json", "filters": ["context"]}},
    "root": {"handlers": ["console"], "level": _log_level("LOG_LEVEL")},
    "loggers": {
        **{name: {"level": "WARNING"} for name in ("httpx", "procrastinate", "stripe")},
        "django.request": {"filters": ["refusals"]},
        "django": {"level": "INFO", "handlers": []},  # not its own too, which with DEBUG writes plain lines
    },
}
