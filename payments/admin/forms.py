"""The forms by which an operator decides: each wants a reason."""

from typing import Any

from django import forms

from idempotency.ids import new_id
from payments.legible import money
from payments.models import Payment
from payments.money import from_decimal, to_decimal

RESOLUTION_MAX = 160  # characters, as the anomaly's row has


class ReasonForm(forms.Form):
    """Why; kept in the history under the operator's name."""

    reason = forms.CharField(
        label="Reason",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 70}),
        help_text="It is kept in the history under your name.",
    )


class ResolutionForm(forms.Form):
    """How an anomaly was settled; that is the reason as well."""

    reason = forms.CharField(
        label="Resolution",
        max_length=RESOLUTION_MAX,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 70, "maxlength": RESOLUTION_MAX}),
        help_text=f"What was found and done, in {RESOLUTION_MAX} characters. It is kept under your name.",
    )


class RefundForm(ReasonForm):
    """How much of a payment goes back, under a number that this very form brings along."""

    number = forms.UUIDField(widget=forms.HiddenInput)
    amount = forms.CharField(label="Amount", widget=forms.TextInput(attrs={"inputmode": "decimal", "size": 12}))
    told = forms.CharField(
        label="Told to the shopper",
        required=False,
        max_length=80,
        help_text="At most 80 characters; the shopper reads it beside the refund. May be empty.",
    )
    field_order = ("amount", "reason", "told", "number")

    def __init__(self, *args: Any, payment: Payment, **kwargs: Any) -> None:
        self.payment = payment
        left = left_minor(payment)
        first = {"number": new_id(), "amount": to_decimal(left, payment.currency)}
        super().__init__(*args, **{"initial": first, **kwargs})
        self.fields["amount"].help_text = f"{payment.currency}; at most {money(left, payment.currency)}."

    def clean_amount(self) -> int:
        """In minor units, above zero; whether so much is left is judged when it is reserved."""
        try:
            amount_minor = from_decimal(self.cleaned_data["amount"].strip(), self.payment.currency)
        except ValueError:
            places = to_decimal(1990, self.payment.currency)
            raise forms.ValidationError(f"Write the amount in digits, as in {places}.") from None
        if not 0 < amount_minor <= self.payment.paid_minor:
            raise forms.ValidationError("It must be more than nothing and not more than was paid.")
        return amount_minor


def left_minor(payment: Payment) -> int:
    """What can still be given back, in minor units."""
    return payment.paid_minor - payment.refunded_minor - payment.reserved_minor
