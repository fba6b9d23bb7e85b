"""`/api/docs/`: a quickstart, Swagger's page, the problem codes; and `/api/schema/`."""

import json
import threading
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.response import Response

from shop.api.schema import EXAMPLE_KEY

QUICKSTART = {"curl": "curl.txt", "Python": "python.txt", "JavaScript": "javascript.txt"}
# Swagger's own, without the blanks around; static/apidocs/words.js shows their translations
SWAGGER_WORDS = (
    _("Authorize"), _("Authorized"), _("Available authorizations"), _("Apply credentials"),
    _("Remove authorization"), _("Logout"), _("Close"), _("Name"), _("Name:"), _("In:"), _("Value:"),
    _("Parameters"), _("No parameters"), _("Description"), _("Try it out"), _("Cancel"), _("Reset"),
    _("Execute"), _("Clear"), _("Send empty value"), _("Default value"), _("Available values"), _("Example"),
    _("Request body"), _("Request content type"), _("Request URL"), _("Request duration"), _("Responses"),
    _("Server response"), _("Response body"), _("Response headers"), _("Response content type"),
    _("Undocumented"), _("Code"), _("Details"), _("Links"), _("No links"), _("Media type"), _("Media Type"),
    _("Controls"), _("header."), _("Example Value"), _("Edit Value"), _("Example Description"),
    _("Examples"), _("Examples:"), _("Schema"), _("Schemas"), _("Enum:"), _("read-only"), _("characters"),
    _("items"), _("matches"), _("Items"), _("Additional properties"), _("Any of"), _("One of"), _("All of"),
    _("Expand all"), _("Collapse all"), _("Expand operation"), _("Collapse operation"),
    _("Copy to clipboard"), _("Copy code to clipboard"), _("Copy path to clipboard"), _("Download"),
    _("Copy cURL command to clipboard"), _("authorization button locked"), _("authorization button unlocked"),
    _("Headers:"), _("Type"),
    _("Failed to load API definition."), _("Errors"),
)  # fmt: skip

_documents: dict[tuple[str | None, str], Any] = {}  # by language, which is one of `LANGUAGES`, and media type
_one_at_a_time = threading.Lock()


class DocsView(SpectacularSwaggerSplitView):
    """drf-spectacular's, opened by blocks of code that run against this very shop."""

    url_name = "schema"
    template_name = "apidocs/page.html"

    @extend_schema(exclude=True)
    def get(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        token = "demo-token" if settings.DEBUG else ""
        facts = {"shop": settings.PUBLIC_URL, "sandbox": settings.SANDBOX_URL, "token": token or "YOUR-TOKEN"}
        response.data |= {
            "quickstart": [
                (name, render_to_string(f"apidocs/{file}", facts)) for name, file in QUICKSTART.items()
            ],
            "demo_token": token,
            "words": json.dumps({word: gettext(word) for word in SWAGGER_WORDS}),
            "example_key": EXAMPLE_KEY,
            "sandbox": settings.SANDBOX_URL,
        }
        return response


class SchemaView(SpectacularAPIView):
    """drf-spectacular's view, which renders for a quarter of a second, once for all callers."""

    authentication_classes = ()

    @extend_schema(exclude=True)
    def get(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        which = (translation.get_language(), renderer.media_type)
        with _one_at_a_time:
            if which not in _documents:
                generator: Any = SchemaGenerator  # which has no types
                schema = generator().get_schema(request=None, public=True)
                _documents[which] = renderer.render(schema, renderer_context={})
        kind = f"{renderer.media_type}; charset={renderer.charset}" if renderer.charset else renderer.media_type
        name = f'inline; filename="payonce-api.{renderer.format}"'
        return HttpResponse(_documents[which], content_type=kind, headers={"Content-Disposition": name})


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """Show every problem code with what to do; a problem's `type` leads to its line."""
    return render(request, "apidocs/problems.html")
