"""Receipts by e-mail, queued with the handling of the payment's event, sent once."""

from smtplib import SMTPDataError, SMTPException, SMTPRecipientsRefused
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import override

from idempotency import once
from shop.models import Order
from shop.web.orderview import view_of

LEASE_SECONDS = 60.0  # longer than a mail server takes


def send(*, order_id: UUID) -> None:
    """Send the receipt of a paid order to its buyer; a repeat sends nothing.

    A mail server knows no keys. Should this process die between its answer and our commit, the receipt goes
    out again under the same Message-ID, by which mail programs know a copy.

    Raises:
        OSError, SMTPException: not sent; the caller may try again.

    Transaction: NONE may be open.
    """
    try:
        once("shop.receipt", key=order_id.hex, lease=LEASE_SECONDS).run(_send, order_id)
    except (SMTPDataError, SMTPRecipientsRefused) as refused:  # which quotes the address, and is logged
        raise SMTPException(f"{type(refused).__name__}: the mail server refuses it") from None


def _send(order_id: UUID) -> None:
    order = Order.objects.select_related("user").get(pk=order_id)
    address = f"{settings.PUBLIC_URL}{reverse('order', args=[order_id])}"
    with override(order.language or settings.LANGUAGE_CODE):
        found = view_of(order_id=order_id, user_id=order.user_id)
        EmailMessage(
            subject=_("Receipt for order %(number)s") % {"number": order.short_number},
            body=render_to_string("shop/receipt.txt", {"view": found, "address": address}),
            to=[order.user.email],
            headers={"Message-ID": f"<receipt.{order_id.hex}@{settings.EMAIL_DOMAIN}>"},
        ).send()
