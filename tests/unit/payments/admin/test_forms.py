"""Forms of operators' acts."""

from payments.admin.forms import RefundForm
from payments.models import Payment


def test_money_of_an_unknown_currency_is_typed_in_minor_units() -> None:
    payment = Payment(currency="XAU", amount_minor=1990, paid_minor=1990)
    assert RefundForm(payment=payment)["amount"].value() == "1990"
    for typed, errors in (("990", []), ("9.90", ["amount"]), ("1991", ["amount"])):
        form = RefundForm({"amount": typed, "reason": "why", "number": payment.pk}, payment=payment)
        assert list(form.errors) == errors
    assert form.fields["amount"].help_text.startswith("At most 1,990 minor units of XAU")
