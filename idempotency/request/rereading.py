"""Second reading of a request, for a handler that runs again."""

from django.http import HttpRequest


def rewind(request: HttpRequest) -> bool:
    """Let a handler read the content from its beginning; False for an upload, which may be closed by now."""
    if request.content_type == "multipart/form-data" or not hasattr(request, "_body"):
        return False
    request._stream.seek(0)
    return True
