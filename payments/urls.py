"""Addresses of payments, relative to where the project puts them."""

from django.urls import include, path

import idempotency.ids  # noqa: F401  registers the <hexid:…> converter
from payments.api import views

api_urlpatterns = [
    path("payments/<hexid:payment_id>", views.PaymentDetail.as_view(), name="api-payment"),
    path("payments/<hexid:payment_id>/refunds", views.RefundList.as_view(), name="api-payment-refunds"),
]

webhook_urlpatterns = [path("<str:account>", views.webhook, name="payments-webhook")]

urlpatterns = [*api_urlpatterns, path("webhooks/", include(webhook_urlpatterns))]
