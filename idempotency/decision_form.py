"""The form by which an operator closes an entry whose outcome is unknown."""

import json
from typing import Any

from django import forms

from idempotency.decisions import RESOLVE_STATUSES, Decision, abandon, resolve


class DecisionForm(forms.Form):
    """What happened, why he thinks so, and what the key is answered with from now on."""

    outcome = forms.ChoiceField(
        choices=[
            ("resolved", "It happened: answer the key with what stands below"),
            ("abandoned", "It did not happen and must not: answer the key with 409"),
        ],
        widget=forms.RadioSelect,
    )
    note = forms.CharField(
        label="Reason",
        widget=forms.Textarea(attrs={"rows": 3, "cols": 70}),
        help_text="How you found out; kept in the history under your name.",
    )
    status = forms.TypedChoiceField(
        coerce=int, choices=[(status, status) for status in RESOLVE_STATUSES], initial=200
    )
    location = forms.CharField(required=False, max_length=500, help_text="Address of what was made, if any.")
    body = forms.CharField(
        required=False,
        initial='{"resolved": true}',
        widget=forms.Textarea(attrs={"rows": 4, "cols": 70}),
        help_text="JSON; empty for 204.",
    )
    fence = forms.IntegerField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("outcome") == "resolved" and cleaned.get("status") != 204:
            try:
                json.loads(cleaned.get("body") or "")
            except ValueError:
                self.add_error("body", "This is not JSON.")
        return cleaned

    def decide(self, *, entry_id: int, operator: str) -> str:
        """Carry it out; returns `resolved` or `abandoned`.

        Raises:
            NotDecidable: the entry changed since the form was made.
        """
        given = self.cleaned_data
        decision = Decision(entry_id=entry_id, fence=given["fence"], operator=operator, note=given["note"])
        if given["outcome"] == "abandoned":
            abandon(decision)
        else:
            resolve(decision, status=given["status"], body=given["body"], location=given["location"])
        return str(given["outcome"])
