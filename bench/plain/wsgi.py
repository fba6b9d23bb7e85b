"""The application of gunicorn's threads, with its views loaded before the workers fork."""

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

application = get_wsgi_application()
get_resolver().url_patterns  # noqa: B018  so that the successor of a killed worker answers at once
