"""PayPal's wire: access tokens, PayPal-Request-Ids and errors.

Source: PayPal, "Authentication", "Idempotency", "API responses" (read 2026-11).
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from payments.sandbox import state
from payments.sandbox.paypal.documents import Document

TOKEN_SECONDS = 32_400
_one_write = threading.Lock()  # one id twice at once: the second waits, and is answered as the first
_tokens: dict[str, float] = {}  # token -> its end; of this process

View = Callable[..., tuple[int, Document | None]]


class Error(Exception):
    """A refusal of the platform, by its name and the issue."""

    def __init__(self, status: int, name: str, issue: str, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.document = {
            "name": name,
            "message": description,
            "debug_id": secrets.token_hex(7),
            "details": [{"issue": issue, "description": description}],
        }


def unprocessable(issue: str, description: str) -> Error:
    """Make the refusal of a request that is understood and cannot be done."""
    return Error(422, "UNPROCESSABLE_ENTITY", issue, description)


def unknown() -> Error:
    return Error(404, "RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID", "The specified resource does not exist.")


def token(request: HttpRequest) -> HttpResponse:
    ours = state.keys().paypal.settings
    login = base64.b64encode(f"{ours['CLIENT_ID']}:{ours['CLIENT_SECRET']}".encode()).decode()
    if not secrets.compare_digest(request.headers.get("Authorization", ""), f"Basic {login}"):
        return JsonResponse({"error": "invalid_client"}, status=401)
    if request.POST.get("grant_type") != "client_credentials":
        return JsonResponse({"error": "unsupported_grant_type"}, status=400)
    made = f"A21AA{secrets.token_urlsafe(60)}"
    _tokens[made] = time.time() + TOKEN_SECONDS
    return JsonResponse({"access_token": made, "token_type": "Bearer", "expires_in": TOKEN_SECONDS})


def merchant_only(view: View) -> Callable[..., HttpResponse]:
    """Require an access token; run a POST of one PayPal-Request-Id once, with its body decoded."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if _tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "), 0.0) < time.time():
            return JsonResponse({"error": "invalid_token"}, status=401)
        try:
            body = json.loads(request.body) if request.body else {}
            status, text = _once(request, lambda: view(request, body, **kwargs))
        except Error as error:
            status, text = error.status, json.dumps(error.document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            refused = Error(400, "INVALID_REQUEST", "INVALID_PARAMETER_SYNTAX", f"{type(error).__name__}: {error}")
            status, text = refused.status, json.dumps(refused.document)
        return HttpResponse(text, status=status, content_type="application/json")

    return wrapper


def _once(request: HttpRequest, run: Callable[[], tuple[int, Document | None]]) -> tuple[int, str]:
    given = request.headers.get("PayPal-Request-Id", "")
    if not given or request.method != "POST":
        return _written(*run())
    key = f"{request.path} {given}"
    fingerprint = hashlib.sha256(request.body).hexdigest()
    with _one_write:
        found = state.store().kept_of(key)
        if found and found["fingerprint"] != fingerprint:
            raise unprocessable("PAYPAL_REQUEST_ID_PREVIOUSLY_USED", "The PayPal-Request-Id was used before.")
        if found:
            return 200, found["body"]
        status, body = _written(*run())
        state.store().keep(key, fingerprint=fingerprint, body=body)
    return status, body


def _written(status: int, document: Document | None) -> tuple[int, str]:
    return status, "" if document is None else json.dumps(document)
