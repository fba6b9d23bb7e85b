"""`GET /api/schema/`: the API's description, rendered once and then served from memory."""

import threading
from typing import Any

from django.http import HttpResponse
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView

_documents: dict[tuple[str | None, str], Any] = {}  # by language, which is one of `LANGUAGES`, and media type
_one_at_a_time = threading.Lock()


class SchemaView(SpectacularAPIView):
    """drf-spectacular's, which renders for a quarter of a second a call; the same for every caller."""

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
