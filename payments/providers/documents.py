"""Documents of providers: taking a member out, and what is raised where they are not of their shape. Pure."""

from collections.abc import Mapping
from typing import Any

# whatever a genuine document of a shape that nobody documented makes the readers of facts raise
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, RecursionError)


def text_of(document: Mapping[str, Any], name: str) -> str:
    """Member `name`, which must be there.

    Raises:
        KeyError: it is not.
        ValueError: it is empty or no text.
    """
    value = document[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a text")
    return value
