"""Addresses of the hotel; payments stand under a prefix of its own."""

from django.contrib import admin
from django.urls import include, path

from bookings.paying import book, refund

urlpatterns = [
    path("admin/", admin.site.urls),
    path("bookings/", book),
    path("bookings/refunds/<str:booking>", refund),
    path("pay/", include("payments.urls")),
    path("", include("notes.urls")),
]
