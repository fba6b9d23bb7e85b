"""Settings from the environment alone (names: docs/reference/settings.md).

A mistake stops the start with a sentence that names the setting. Secrets have defaults with `DEBUG` on only, for
`make run` and tests, where demo logins may exist.
"""

import os
from pathlib import Path
from typing import Any

from csp import constants as csp
from django.core.exceptions import ImproperlyConfigured
from django.http.request import split_domain_port

from shop.devserver import redis_url
from shop.environment import SECRET_LENGTH, Environment

BASE_DIR = Path(__file__).resolve().parent.parent
DEMO_SECRET_KEY = "demo-only-" + "0" * 54  # the same everywhere, hence refused with DEBUG off

env = Environment(os.environ)
DEBUG = env.debug

SECRET_KEY = env.str("SECRET_KEY", default=DEMO_SECRET_KEY if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured(f"SECRET_KEY is not set; set it to at least {SECRET_LENGTH} random characters.")
env.check_secret("SECRET_KEY", SECRET_KEY)
# a former key signs as well as the current one, so it must be as hard to guess
SECRET_KEY_FALLBACKS = env.parts("SECRET_KEY_FALLBACKS")
for _fallback in SECRET_KEY_FALLBACKS:
    env.check_secret("SECRET_KEY_FALLBACKS", _fallback)

PUBLIC_URL = env.str("PUBLIC_URL", default="http://127.0.0.1:8000" if DEBUG else "").rstrip("/")
if not PUBLIC_URL:
    raise ImproperlyConfigured("PUBLIC_URL is not set; payment providers send their notifications to it.")
_public = env.web_address("PUBLIC_URL", default=PUBLIC_URL)
if not split_domain_port(_public.netloc)[0]:  # by Django's host check, each notification too
    raise ImproperlyConfigured("PUBLIC_URL names a host that Django refuses: write letters, digits, dots and -.")

ALLOWED_HOSTS = env.hosts("ALLOWED_HOSTS") or (["127.0.0.1", "localhost", "[::1]", "testserver"] if DEBUG else [])
# or every notification would be refused
ALLOWED_HOSTS.append(f"[{_public.hostname}]" if ":" in str(_public.hostname) else str(_public.hostname))
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

DATABASES = {"default": env.database("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.required("REDIS_URL")
try:
    CACHES = redis_url.caches(REDIS_URL)
except ValueError as error:
    raise ImproperlyConfigured(f"REDIS_URL {error}.") from None

SESSION_ENGINE = "shop.platform.sessions"  # in the database: a login must not hang on Redis

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{kind}Validator"}
    for kind in ("UserAttributeSimilarity", "MinimumLength", "CommonPassword", "NumericPassword")
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "catalogue"
LOGOUT_REDIRECT_URL = "catalogue"

LANGUAGE_CODE = "en"
LOCALE_PATHS = [BASE_DIR / "shop" / "locale"]  # before those of Django's admin, the first app
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = "UTC"  # as the admin's forms say

# receipts; without a mail server they are files under DATA_DIR with DEBUG, else none is sent
globals().update(env.mailer("EMAIL_URL", folder=DATA_DIR / "mail"))
EMAIL_DOMAIN = str(_public.hostname)
DEFAULT_FROM_EMAIL = env.sender("EMAIL_FROM", default=f"PayOnce <noreply@{EMAIL_DOMAIN}>")

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
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _public.scheme == "https" else None
_https = _public.scheme == "https" and not DEBUG  # a developer's shop is also asked beside the tunnel
SECURE_SSL_REDIRECT = _https
# their X-Forwarded-For is believed (shop.platform.clientip)
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES")
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
# for the domain's owner to decide: both bind other names too, and preloading takes months to undo
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.flag("HSTS_SUBDOMAINS")
SECURE_HSTS_PRELOAD = env.flag("HSTS_PRELOAD")
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
if SANDBOX_URL:
    env.web_address("SANDBOX_URL")

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
}

# counted over all processes (shop.api.throttling); far above what a person or a sound program does
API_CALLS_PER_MINUTE = env.count("API_CALLS_PER_MINUTE", default=60_000)
API_CALLS_PER_MINUTE_OVERALL = env.count("API_CALLS_PER_MINUTE_OVERALL", default=600_000)

# of the pages (shop.web.rates): forms of one member, or of all guests of one address; passwords that were wrong
FORM_POSTS_PER_MINUTE = env.count("FORM_POSTS_PER_MINUTE", default=600)
LOGIN_FAILURES_PER_NAME = env.count("LOGIN_FAILURES_PER_NAME", default=10)
LOGIN_FAILURES_PER_ADDRESS = env.count("LOGIN_FAILURES_PER_ADDRESS", default=60)

SPECTACULAR_SETTINGS = {
    "TITLE": "PayOnce API",
    "DESCRIPTION": "Orders and payments that happen exactly once.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": r"/api/v[0-9]+",
    "COMPONENT_SPLIT_PATCH": False,  # a PATCH requires its fields too
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "shop.api.schema.add_common_responses",
        "shop.api.schema.name_ids",
        "shop.api.schema.translate",
    ],
}

IDEMPOTENCY: dict[str, Any] = {
    "KEYED": ["/api/v1/"],
    "PROBLEM_TYPE_BASE": f"{PUBLIC_URL}/api/docs/problems#",
    "SUBJECT_ADMIN": {"order": "admin:shop_order_change", "payment": "admin:payments_payment_change"},
}
if redis_url.is_cluster(REDIS_URL):
    IDEMPOTENCY["REDIS"] = "shop.devserver.redis_url.cluster_client"
# answers at rest: "<key id>:<32 bytes in base64>" for each key, the one for new answers first
if _body_keys := env.named_keys("IDEMPOTENCY_BODY_KEYS"):
    IDEMPOTENCY["BODY_KEYS"] = _body_keys

# the timers alone make 100,000 jobs a day; failed ones stay for a person (shop.tasks.clear_jobs)
PROCRASTINATE_WORKER_DEFAULTS = {"delete_jobs": "successful"}

ORDER_TTL_SECONDS = 1800
# life of the catalogue's page in a process's memory (shop.catalog.cache); 0: none
CATALOGUE_SECONDS = env.seconds("CATALOGUE_SECONDS", default=1, longest=60)

PAYMENTS = {
    "BASE_URL": PUBLIC_URL,
    "ORDER": "shop.orders.lifecycle",
    "EVENTS": "shop.orders.fulfilment.on_event",
    "WEBHOOKS": env.document("WEBHOOKS"),
    "PROVIDERS": env.channels(),
    "LIMITS": {
        "CALLS": env.count("PROVIDER_CALLS_MAX", default=32),
        "CALLS_PER_SECOND": env.count("PROVIDER_CALLS_PER_SECOND", default=100),
        # a phased handler makes four calls at most, of 5 s each: with four waits it ends within its lease of 30 s
        "WAIT_SECONDS": env.seconds("PROVIDER_WAIT_SECONDS", default=1, longest=2),
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "context": {"()": "idempotency.observability.logs.ContextFilter"},
        "refusals": {"()": "shop.platform.logs.RefusalFilter"},
        "jobs": {"()": "shop.platform.logs.JobsFilter"},
    },
    "formatters": {"json": {"()": "shop.platform.logs.json_formatter"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "filters": ["jobs", "refusals", "context"],
        }
    },
    "root": {"handlers": ["console"], "level": env.log_level("LOG_LEVEL")},
    "loggers": {
        **{name: {"level": "WARNING"} for name in ("httpx", "stripe")},
        "procrastinate": {"level": "INFO"},  # less what `jobs` drops
        "django": {"level": "INFO", "handlers": []},  # not its own too, which with DEBUG writes plain lines
    },
}
