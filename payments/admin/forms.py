"""Forms of operators' acts: each wants a reason."""

from typing import Any

from django import forms

from idempotency.admin.pages import reason_field
from idempotency.ids import new_id
from payments.display import money
from payments.models import Attempt, Payment, Refund
from payments.money import from_decimal, to_decimal
from payments.reconciliation.bills import NUMBER_MAX

RESOLUTION_MAX = 160  # characters, as the anomaly's row has


class ReasonForm(forms.Form):
    """Reason of an operator, stored in the history under their name."""

    reason = reason_field("It is stored in the history under your name.", max_length=1000)


class ResolutionForm(forms.Form):
    """Resolution of an anomaly; that is the reason as well."""

    reason = forms.CharField(
        label="Resolution",
        max_length=RESOLUTION_MAX,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 70, "maxlength": RESOLUTION_MAX}),
        help_text=f"What was found and done, in {RESOLUTION_MAX} characters. It is stored under your name.",
    )


class RefundForm(ReasonForm):
    """Amount to refund, under a number that this very form brings along."""

    number = forms.UUIDField(widget=forms.HiddenInput)
    amount = forms.CharField(label="Amount", widget=forms.TextInput(attrs={"inputmode": "decimal", "size": 12}))
    shown_reason = forms.CharField(
        label="Message to the shopper",
        required=False,
        max_length=80,
        help_text="At most 80 characters; the shopper reads it beside the refund. May be empty.",
    )
    field_order = ("amount", "reason", "shown_reason", "number")

    def __init__(self, *args: Any, payment: Payment, **kwargs: Any) -> None:
        self.payment = payment
        left = left_minor(payment)
        first = {"number": new_id(), "amount": to_decimal(left, payment.currency)}
        super().__init__(*args, **{"initial": first, **kwargs})
        most, half = money(left, payment.currency), money(left // 2, payment.currency)
        self.fields["amount"].help_text = f"At most {most}; half of it is {half}."

    def clean_amount(self) -> int:
        """Convert to minor units above zero; the rest is judged when it is reserved."""
        amount_minor = in_minor(self.cleaned_data["amount"], self.payment.currency)
        if not 0 < amount_minor <= self.payment.paid_minor:
            raise forms.ValidationError("It must be more than nothing and not more than was paid.")
        return amount_minor


class OutcomeForm(ReasonForm):
    """Outcome of an attempt or refund, as the provider's own pages show it."""

    moved = forms.TypedChoiceField(
        label="The provider's pages say", coerce=lambda answer: answer == "yes", widget=forms.RadioSelect
    )
    number = forms.RegexField(
        regex=r"^[A-Za-z0-9_-]+$",
        label="Its number there",
        required=False,
        strip=True,
        max_length=NUMBER_MAX,
        widget=forms.TextInput(attrs={"size": 40, "autocomplete": "off"}),
        error_messages={"invalid": "Such a number has letters, digits, - and _ alone."},
    )
    field_order = ("moved", "number", "reason")

    def __init__(self, *args: Any, row: Attempt | Refund, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(row, Attempt):
            asked_for, what = money(row.amount_minor, row.currency), "payment"
            yes, no = f"It was paid, with {asked_for}.", "It was never paid and cannot be any more."
        else:
            yes, no, what = "The money went back.", "It did not move.", "refund"
        self.fields["moved"].choices = [("yes", yes), ("no", no)]  # type: ignore[attr-defined]
        self.fields["number"].help_text = f"That of the {what}, for the history; empty if nothing moved."

    def clean(self) -> dict[str, Any]:
        """Require a number exactly where money moved."""
        given = self.cleaned_data
        moved, number = given.get("moved"), given.get("number")
        if moved is False:
            if number:
                self.add_error("number", "Leave it empty: nothing moved.")
        elif moved and number == "":
            self.add_error("number", "Money moved, so it has a number there.")
        return given


def in_minor(text: str, currency: str) -> int:
    """Convert typed money to minor units.

    Raises:
        ValidationError: it is no amount of this currency.
    """
    try:
        return from_decimal(text.strip(), currency)
    except ValueError:
        raise forms.ValidationError(f"Write the amount in digits, as in {to_decimal(1990, currency)}.") from None


def left_minor(payment: Payment) -> int:
    """Return the amount that can still be refunded, in minor units."""
    return payment.paid_minor - payment.refunded_minor - payment.reserved_minor
