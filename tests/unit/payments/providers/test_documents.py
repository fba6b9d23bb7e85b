"""Documents of an unknown shape, whatever they are parsed with."""

from collections.abc import Callable
from decimal import Decimal
from xml.etree import ElementTree

import pytest

from payments.errors import NotificationMalformed, OutcomeUnknown
from payments.providers import readable, reading


@pytest.mark.parametrize(
    "parse",
    [
        lambda: {}["amount"],
        [].pop,
        lambda: Decimal("twelve"),
        lambda: int(Decimal("Infinity")),
        lambda: ElementTree.fromstring("<torn"),
        b"\xff".decode,
    ],
)
def test_what_cannot_be_parsed_is_unknown_or_malformed(parse: Callable[[], object]) -> None:
    with pytest.raises(OutcomeUnknown, match="the answer's payment cannot be read: "), reading("payment"):
        parse()
    with pytest.raises(NotificationMalformed, match="not a readable notification: "), readable("notification"):
        parse()
