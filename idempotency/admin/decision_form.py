"""Form by which an operator closes an entry whose outcome is unknown."""

from typing import Any

from django import forms
from django.core.validators import RegexValidator
from django.utils.translation import gettext_lazy as _

from idempotency.admin.pages import reason_field
from idempotency.maintenance.decisions import RESOLVE_STATUSES, Decision, abandon, must_be_json, resolve


class DecisionForm(forms.Form):
    """An operator's decision: what happened, the reason, and the answer of the key from now on."""

    outcome = forms.ChoiceField(
        choices=[
            ("resolved", _("It happened. Retries get the answer that you give here.")),
            ("abandoned", _("It did not happen and must not any more. Retries get 409.")),
        ],
        label=_("What do you know?"),
        widget=forms.RadioSelect,
    )
    note = reason_field(_("How you found out. It is stored in the history under your name."))
    status = forms.TypedChoiceField(
        label=_("Status"),
        coerce=int,
        choices=[(status, status) for status in RESOLVE_STATUSES],
        initial=200,
    )
    location = forms.CharField(
        label=_("Location"),
        required=False,
        max_length=500,
        validators=[RegexValidator(r"^\S*\Z", _("An address has no spaces in it."))],
        help_text=_("Address of what was made, if any: the answer's Location header."),
    )
    body = forms.CharField(
        label=_("Body"),
        required=False,
        initial='{"resolved": true}',
        widget=forms.Textarea(attrs={"rows": 4, "cols": 70}),
        help_text=_("JSON, as the caller would have got it; not sent with 204."),
    )
    fence = forms.IntegerField(widget=forms.HiddenInput)

    @property
    def answer_fields(self) -> list[forms.BoundField]:
        """Fields that count only if it happened."""
        return [self[name] for name in ("status", "location", "body")]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("outcome") == "resolved" and cleaned.get("status") != 204:
            try:
                must_be_json(cleaned.get("body") or "")
            except ValueError:
                self.add_error("body", _("This is not JSON."))
        return cleaned

    def decide(self, *, entry_id: int, operator: str) -> str:
        """Carry it out and return `resolved` or `abandoned`. Raises NotDecidable or NotAbandonable."""
        given = self.cleaned_data
        decision = Decision(entry_id=entry_id, fence=given["fence"], operator=operator, note=given["note"])
        if given["outcome"] == "abandoned":
            abandon(decision)
        else:
            resolve(decision, status=given["status"], body=given["body"], location=given["location"])
        return str(given["outcome"])
