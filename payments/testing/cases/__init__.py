"""The cases of a certificate: what happens to payments, and what a plug-in must make of it.

A case is a function whose name says what happens; it raises `Broken` with the sentence for its author.
"""

from collections.abc import Callable

from payments.testing.bench import Bench
from payments.testing.cases.answers import answers_lost, foreign_answers, refused_questions, wrong_number
from payments.testing.cases.declarations import declared
from payments.testing.cases.money import (
    a_bill,
    a_dispute,
    a_payment,
    a_void,
    after_close,
    asking_moves_nothing,
    parallel,
    refunds,
)
from payments.testing.cases.notifications import (
    acknowledged,
    delayed,
    duplicates,
    early,
    forged,
    reordered,
    stale,
    wrong_amount,
    wrong_currency,
    wrong_merchant,
)

CASES: tuple[Callable[[Bench], None], ...] = (
    *(
        declared,
        a_payment,
        asking_moves_nothing,
        refunds,
        duplicates,
        parallel,
        acknowledged,
        delayed,
        reordered,
        early,
    ),
    *(after_close, a_void, wrong_amount, wrong_currency, wrong_merchant, wrong_number),
    *(answers_lost, refused_questions, forged, stale, foreign_answers, a_bill, a_dispute),
)
