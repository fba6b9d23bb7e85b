"""Django as a micro-framework for the sandbox: no database, no users."""

import secrets

SECRET_KEY = secrets.token_urlsafe(50)
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "payments.sandbox.urls"
INSTALLED_APPS: list[str] = []
MIDDLEWARE = [
    "django.middleware.locale.LocaleMiddleware",
    "payments.sandbox.pages.content_policy",
    "payments.sandbox.faults.FaultMiddleware",
]
# catalogues of its own: those of the apps are of another process
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [__file__.rsplit("/", 1)[0] + "/locale"]
USE_TZ = True
TIME_ZONE = "Asia/Shanghai"
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [__file__.rsplit("/", 1)[0] + "/templates"],
        "OPTIONS": {
            "context_processors": ["django.template.context_processors.i18n", "payments.sandbox.pages.shop"],
            "builtins": ["django.templatetags.i18n"],
        },
    }
]
LOGGING_CONFIG = None
