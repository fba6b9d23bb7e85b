"""Checks of answers: about what was asked, and conclusive about an earlier command or not."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import Counter

from payments.errors import OutcomeUnknown, ProviderError

log = logging.getLogger(__name__)

MISMATCHED = Counter(
    "payonce_provider_answers_mismatched",
    "Genuine answers that name another trade, refund, amount or currency than was asked about, by channel.",
    ["channel"],
)


def must_match(channel: str, *, asked: Mapping[str, object], answer: Mapping[str, object]) -> None:
    """Refuse an answer that is not about what was asked: OutcomeUnknown, see `differences`.

    A genuine answer may be about another trade; this check keeps it from becoming a fact about ours.
    """
    if found := differences(channel, asked=asked, answer=answer):
        raise OutcomeUnknown(f"the answer is not about what was asked: {found}")


def differences(channel: str, *, asked: Mapping[str, object], answer: Mapping[str, object]) -> str:
    """Compare each member of `asked` with the answer's, which must be there.

    What differs is counted, logged and returned as a text.
    """
    wrong = [name for name, value in asked.items() if answer.get(name) != value]
    if not wrong:
        return ""
    MISMATCHED.labels(channel).inc()
    found = "; ".join(f"{name} is {answer.get(name)!r:.80}, not {asked[name]!r}" for name in wrong)
    log.error("An answer of %s is not about what was asked: %s", channel, found)
    return found


@contextmanager
def follow_up() -> Iterator[None]:
    """Raise `OutcomeUnknown` where a question about an earlier command fails.

    Only a verified answer about the command ends it; a refused or unsent question does not.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except ProviderError as error:
        raise OutcomeUnknown(f"what became of it cannot be asked: {error}") from error
