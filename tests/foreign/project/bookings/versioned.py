"""Bookings with an optimistic version."""

from django.db import IntegrityError, connection
from django.db.models import F

from bookings.models import Booking
from bookings.paying import Bookings


class Versioned(Bookings):
    def mark_paid(self, booking: Booking) -> bool:
        if booking.status != "open":
            return False
        same = Booking.objects.filter(pk=booking.pk, version=booking.version)
        with connection.cursor() as cursor:  # the test holds it, and changes the booking meanwhile
            cursor.execute("SELECT pg_advisory_xact_lock_shared(30)")
        if not same.update(status="paid", paid_times=F("paid_times") + 1, version=F("version") + 1):
            raise IntegrityError("the booking has changed")
        return True
