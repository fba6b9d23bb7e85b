"""Django as a micro-framework for the sandbox: no database, no users, no middleware."""

import secrets

SECRET_KEY = secrets.token_urlsafe(50)
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "payments.sandbox.urls"
INSTALLED_APPS: list[str] = []
MIDDLEWARE = ["payments.sandbox.pages.content_policy", "payments.sandbox.faults.FaultMiddleware"]
USE_TZ = True
TIME_ZONE = "Asia/Shanghai"
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [__file__.rsplit("/", 1)[0] + "/templates"],
        "OPTIONS": {
            "context_processors": ["payments.sandbox.words.for_pages"],
            "builtins": ["payments.sandbox.words"],
        },
    }
]
LOGGING_CONFIG = None
