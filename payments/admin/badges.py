"""Statuses as coloured badges, and names of the journal's accounts."""

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_noop as _

from idempotency.admin.pages import column
from payments.channels.accounts import provider_name
from payments.settlement import journal

STATUS = gettext_lazy("status")
BOOKS = {journal.ORDERS: _("Orders"), journal.HELD: _("Held"), journal.DISPUTED: _("Disputed")}

TONES = {
    "good": (_("succeeded"), _("paid"), _("applied"), _("handled"), _("delivered"), _("resolved"), _("agrees")),
    "wait": (_("created"), _("pending"), _("requested"), _("processing"), _("held"), _("waiting"), _("sending")),
    "doubt": (_("uncertain"), _("open"), _("anomaly"), _("quarantined")),
    "back": (_("refunded"), _("partially refunded")),
    "bad": (_("failed"), _("error")),
    "quiet": (_("closed"), _("ignored"), _("duplicate")),
}
TONE_OF = {word: tone for tone, words in TONES.items() for word in words}


def badge(value: str, words: Any = "") -> SafeString:
    """Show a status in its colour; what has none is grey."""
    word = value.replace("_", " ")
    tone = TONE_OF.get(word, "quiet")
    return format_html('<span class="payments-badge payments-{}">{}</span>', tone, gettext(str(words or word)))


def badge_column(field: str = "status", words: Any = STATUS) -> Any:
    """Make a column with the words of `field` as a badge."""
    return column(lambda row: badge(getattr(row, field), getattr(row, f"get_{field}_display")()), words)


def book_name(account: str) -> str:
    """Name an account of the journal: ``Orders``, ``Held``, or a provider's."""
    channel, _sep, merchant = account.removeprefix(journal.THERE).partition(":")
    if not merchant:
        return gettext(BOOKS.get(account, account))
    return gettext("%(channel)s (%(merchant)s)") % {"channel": provider_name(channel), "merchant": merchant}
