"""System check of the path prefixes in ``KEYED``."""

import re
from typing import Any

from django.core.checks import CheckMessage, Tags
from django.core.checks import Warning as Advice

from idempotency.checks.registry import register
from idempotency.checks.views import all_views
from idempotency.conf import parsed

# where a converter or a regular expression begins in a pattern
_VARIES = re.compile(r"[<(\[\\^$.?*+|]")


@register(Tags.urls)
def check_prefixes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn of a path prefix in ``KEYED`` below which there is no view, such as a misspelt one."""
    config = parsed()
    if config is None or not config.enabled or isinstance(config.keyed, str):
        return []
    paths = [path for path, _ in all_views()]
    return [
        Advice(
            f"IDEMPOTENCY['KEYED'] has the prefix {prefix!r}, and no view's address begins so: it keys nothing. "
            "Correct it, or remove it.",
            id="idempotency.W007",
        )
        for prefix in config.keyed
        if paths and not any(_may_begin_with(path, prefix) for path in paths)
    ]


def _may_begin_with(path: str, prefix: str) -> bool:
    """Check if an address of this pattern can begin with `prefix`; what varies in it may be anything."""
    fixed = _VARIES.split(path, maxsplit=1)[0]
    return fixed.startswith(prefix) or (fixed != path and prefix.startswith(fixed))
