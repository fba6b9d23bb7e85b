"""`/api/docs/`: a quickstart above Swagger's page, and the problem codes with what to do."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.response import Response

from shop.api.schema import EXAMPLE_KEY

QUICKSTART = {"curl": "curl.txt", "Python": "python.txt", "JavaScript": "javascript.txt"}


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
            "example_key": EXAMPLE_KEY,
            "sandbox": settings.SANDBOX_URL,
        }
        return response


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """Show every problem code with what to do; a problem's `type` leads to its line."""
    return render(request, "apidocs/problems.html")
