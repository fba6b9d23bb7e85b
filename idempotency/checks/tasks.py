"""System check of calls without HTTP."""

from typing import Any

from django.core.checks import CheckMessage, Error, Tags

from idempotency.checks.registry import register
from idempotency.functions import places_of_tasks


@register(Tags.compatibility)
def check_tasks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that no two functions share a name of `once.task`; one would get the results of the other."""
    return [
        Error(
            f"once.task({name!r}) is the name of {' and of '.join(sorted(places))}: equal keys give one of them "
            "the results of the other. Give one of them another name.",
            id="idempotency.E020",
        )
        for name, places in sorted(places_of_tasks.items())
        if len(places) > 1
    ]
