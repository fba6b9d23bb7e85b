"""The money journal: append-only, double entry, zero-sum by the database."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from payments.models.facts import Observation
from payments.models.guards import balanced, stored


class JournalEntry(models.Model):
    """Movement of money, of one observed fact. Its lines add up to zero in each currency.

    The unique (observation, kind) is what makes a fact move money once in the books, however often it is settled.
    """

    class Kind(models.TextChoices):
        MOVED = "moved", _("money came in or went out")
        COUNTED = "counted", _("what was held is now the order's")

    observation = models.ForeignKey(Observation, on_delete=models.PROTECT, related_name="entries", db_index=False)
    kind = models.CharField(max_length=8, choices=Kind)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "journal entries"
        constraints = (
            models.UniqueConstraint(fields=["observation", "kind"], name="journal_once_per_fact"),
            stored("journal_entry_stays", on="UPDATE OR DELETE"),
            balanced("journal_entry_adds_up", entry="id"),
        )

    def __str__(self) -> str:
        return f"{self.pk} {self.get_kind_display()}"


class JournalLine(models.Model):
    """Side of an entry: above zero is a debit, below zero a credit."""

    entry = models.ForeignKey(JournalEntry, on_delete=models.PROTECT, related_name="lines", db_index=False)
    account = models.CharField(max_length=96)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=~Q(amount_minor=0), name="journal_line_moves_something"),
            models.UniqueConstraint(
                fields=["entry", "account", "currency"], name="journal_account_once_per_entry"
            ),
            stored("journal_line_stays", on="UPDATE OR DELETE"),
            balanced("journal_line_adds_up", entry="entry_id"),
        )
        indexes = (models.Index(fields=["account", "currency"], name="journal_by_account"),)

    def __str__(self) -> str:
        return gettext("line %(line)s of entry %(entry)s") % {"line": self.pk, "entry": self.entry_id}
