"""Forms of operators' acts: each wants a reason."""

from typing import Any

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin.pages import reason_field
from idempotency.ids import new_id
from payments.display import money, plain
from payments.models import Attempt, Payment, Refund
from payments.money import EXPONENTS, from_decimal
from payments.providers.documents import NUMBER_MAX

RESOLUTION_MAX = 160  # characters, as the anomaly's row has


class ReasonForm(forms.Form):
    """Reason of an operator, stored in the history under their name."""

    reason = reason_field(_("It is stored in the history under your name."), max_length=1000)


class ResolutionForm(forms.Form):
    """Resolution of an anomaly; that is the reason as well."""

    reason = forms.CharField(
        label=_("Resolution"),
        max_length=RESOLUTION_MAX,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 70, "maxlength": RESOLUTION_MAX}),
        help_text=format_lazy(
            _("What was found and done, in {most} characters. It is stored under your name."), most=RESOLUTION_MAX
        ),
    )


class RefundForm(ReasonForm):
    """Amount to refund, under a number that this very form brings along."""

    number = forms.UUIDField(widget=forms.HiddenInput)
    amount = forms.CharField(label=_("Amount"), widget=forms.TextInput(attrs={"inputmode": "decimal", "size": 12}))
    shown_reason = forms.CharField(
        label=_("Message to the shopper"),
        required=False,
        max_length=80,
        help_text=_("At most 80 characters; the shopper reads it beside the refund. May be empty."),
    )
    field_order = ("amount", "reason", "shown_reason", "number")

    def __init__(self, *args: Any, payment: Payment, **kwargs: Any) -> None:
        self.payment = payment
        left = payment.refundable_minor
        first = {"number": new_id(), "amount": plain(left, payment.currency)}
        super().__init__(*args, **{"initial": first, **kwargs})
        amounts = {"most": money(left, payment.currency), "half": money(left // 2, payment.currency)}
        self.fields["amount"].help_text = gettext("At most %(most)s; half of it is %(half)s.") % amounts

    def clean_amount(self) -> int:
        """Convert to minor units above zero; the rest is judged when it is reserved."""
        amount_minor = in_minor(self.cleaned_data["amount"], self.payment.currency)
        if not 0 < amount_minor <= self.payment.paid_minor:
            raise forms.ValidationError(_("It must be more than nothing and not more than was paid."))
        return amount_minor


class OutcomeForm(ReasonForm):
    """Outcome of an attempt or refund, as the provider's own pages show it."""

    moved = forms.TypedChoiceField(
        label=_("The provider's pages say"), coerce=lambda answer: answer == "yes", widget=forms.RadioSelect
    )
    number = forms.RegexField(
        regex=r"^[A-Za-z0-9_-]+$",
        label=_("Its number there"),
        required=False,
        strip=True,
        max_length=NUMBER_MAX,
        widget=forms.TextInput(attrs={"size": 40, "autocomplete": "off"}),
        error_messages={"invalid": _("Such a number has letters, digits, - and _ alone.")},
    )
    field_order = ("moved", "number", "reason")

    def __init__(self, *args: Any, row: Attempt | Refund, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(row, Attempt):
            asked_for = {"money": money(row.amount_minor, row.currency)}
            yes = gettext("It was paid, with %(money)s.") % asked_for
            no = gettext("It was never paid and cannot be any more.")
            number = gettext("That of the payment, for the history; empty if nothing moved.")
        else:
            yes, no = gettext("The money went back."), gettext("It did not move.")
            number = gettext("That of the refund, for the history; empty if nothing moved.")
        self.fields["moved"].choices = [("yes", yes), ("no", no)]  # type: ignore[attr-defined]
        self.fields["number"].help_text = number

    def clean(self) -> dict[str, Any]:
        """Require a number exactly where money moved."""
        given = self.cleaned_data
        moved, number = given.get("moved"), given.get("number")
        if moved is False and number:
            self.add_error("number", _("Leave it empty: nothing moved."))
        elif moved and number == "":
            self.add_error("number", _("Money moved, so it has a number there."))
        return given


def in_minor(text: str, currency: str) -> int:
    """Convert typed money to minor units, or raise ValidationError."""
    try:
        return from_decimal(text.strip(), currency) if currency in EXPONENTS else int(text)
    except ValueError:
        example = {"amount": plain(1990, currency)}
        raise forms.ValidationError(gettext("Write the amount in digits, as in %(amount)s.") % example) from None
