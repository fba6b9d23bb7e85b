"""The adapter of the bookings, and the page that begins to pay."""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

import payments
from bookings.models import Booking, Guest


def on_payment(*, order_id: UUID, event: str, work: object) -> bool:
    """Take the booking's step."""
    booking = Booking.objects.filter(pk=order_id)
    if event == "payable":
        return booking.filter(status="open").exists()
    work.flush()
    if event == "paid" and booking.filter(status="open").update(status="paid", paid_times=F("paid_times") + 1):
        return True
    if event == "refunded":
        booking.filter(status="paid").update(status="refunded")
    return booking.exclude(status="open").exists()


def return_url(*, order_id: UUID) -> str:
    """The guest's page."""
    return f"/bookings/{order_id.hex}"


@csrf_exempt
def book(request: HttpRequest) -> JsonResponse:
    """Book a room, and have the channel of the form take the money."""
    guest, _ = Guest.objects.get_or_create(username="ann")
    with transaction.atomic():
        booking = Booking.objects.create(guest=guest, price_minor=12_800)
        attempt = payments.open_attempt(
            order_id=booking.pk,
            owner_id=None if "nobody" in request.POST else guest.pk,
            amount_minor=booking.price_minor,
            currency="CNY",
            channel=request.POST["channel"],
            description="A room",
            expires_at=timezone.now() + timedelta(minutes=30),
        )
    payment = payments.submit_attempt(attempt.pk)
    attempt.refresh_from_db()
    found = {"booking": booking.pk.hex, "payment": payment.pk.hex, "number": attempt.out_trade_no}
    return JsonResponse({**found, "way": attempt.next_action_type, "link": attempt.next_action_url})


@csrf_exempt
def refund(request: HttpRequest, payment: str) -> JsonResponse:
    """Give everything back."""
    with transaction.atomic():
        asked = payments.request_refund(payment_id=UUID(hex=payment), amount_minor=12_800, reason="rain")
    return JsonResponse({"status": payments.submit_refund(asked.pk).status})
