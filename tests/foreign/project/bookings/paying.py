"""The adapter of the bookings, and the pages that have them paid and give the money back."""

from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

import payments
from bookings.models import Booking, Guest


class Bookings(payments.Payable):
    model = Booking

    def amount(self, booking: Booking) -> int:
        return booking.price_minor

    def describe(self, booking: Booking) -> str:
        return "A room"

    def owner(self, booking: Booking) -> Guest | None:
        return booking.guest

    def return_url(self, booking: Booking) -> str:
        return f"/bookings/{booking.pk}"

    def is_payable(self, booking: Booking) -> bool:
        return booking.status == "open"

    def mark_paid(self, booking: Booking) -> bool:
        waiting = Booking.objects.filter(pk=booking.pk, status="open")
        return waiting.update(status="paid", paid_times=F("paid_times") + 1) == 1

    def mark_refunded(self, booking: Booking) -> None:
        Booking.objects.filter(pk=booking.pk).update(status="refunded")


@csrf_exempt
def book(request: HttpRequest) -> JsonResponse:
    """Book a room, and have the channel of the form take the money."""
    guest, _ = Guest.objects.get_or_create(name="ann")
    booking = Booking.objects.create(guest=None if "nobody" in request.POST else guest, price_minor=12_800)
    attempt = payments.start(booking, method=request.POST["method"], request=request)
    found = {"booking": str(booking.pk), "payment": attempt.payment_id.hex, "number": attempt.out_trade_no}
    return JsonResponse({**found, "way": attempt.next_action_type, "link": attempt.next_action_url})


@csrf_exempt
def refund(request: HttpRequest, booking: str) -> JsonResponse:
    """Give everything back."""
    found = Booking.objects.get(pk=booking)
    payments.refund(found, reason="rain")
    return JsonResponse({"status": payments.status(found)})
