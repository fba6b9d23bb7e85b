"""System check of webhooks."""

from typing import Any

from django.core.checks import CheckMessage, Error, Tags

from idempotency.checks.registry import register
from idempotency.checks.views import all_views


@register(Tags.urls)
def check_webhooks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that every webhook has the secret that it verifies with."""
    hooks = {view.webhook.sender: view.webhook for _, view in all_views() if hasattr(view, "webhook")}
    return [
        Error(
            f"@webhook({sender!r}) answers 503 to everything: {fault}.",
            hint=f"Write verify={type(hook.verify).__name__}(…) with the secret that the sender shows for this "
            "endpoint, a list of two while you rotate it, or a function that returns it.",
            id="idempotency.E017",
        )
        for sender, hook in sorted(hooks.items())
        if (fault := hook.verify.fault())
    ]
