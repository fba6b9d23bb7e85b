"""The cases of a certificate: what happens to payments, and what a plug-in must make of it.

A case is a function whose name says what happens; it raises `Broken` with the sentence for its author.
"""

from collections.abc import Callable

from payments.testing.bench import Bench
from payments.testing.cases import answers, declarations, money, notifications

CASES: tuple[Callable[[Bench], None], ...] = (
    *(declarations.declared, money.a_payment, money.asking_moves_nothing, money.refunds),
    *(notifications.duplicates, money.parallel, notifications.acknowledged, notifications.delayed),
    *(notifications.reordered, notifications.early, money.after_close, money.a_void),
    *(notifications.wrong_amount, notifications.wrong_currency, notifications.wrong_merchant),
    *(answers.wrong_number, answers.answers_lost, answers.refused_questions),
    *(notifications.forged, notifications.stale, answers.foreign_answers, money.a_bill, money.a_dispute),
)
