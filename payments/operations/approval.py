"""Policy refunds above ``PAYMENTS["REFUNDS"]``'s limit: approved or declined, once each."""

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments.display import at_stake
from payments.models import Anomaly, Payment
from payments.operations.actions import NotDecidable, Operator, Result, audit
from payments.settlement import anomalies
from payments.settlement.apply import queue_refund
from payments.settlement.decision import PolicyRefund
from payments.settlement.settle import rederive
from payments.settlement.state import as_id

NOTHING_WAITS = gettext_lazy("No refund waits for approval here.")


def approve(anomaly: Anomaly, *, by: Operator) -> Result:
    """Store and queue the refund of what the anomaly is about.

    Raises:
        NotDecidable: it was approved or declined before.

    Transaction: opens its own; locks the payment's row. No network: the worker submits it.
    """
    if anomaly.payment_id is None or as_id(anomaly.detail.get("out_trade_no", "")) is None:
        raise NotDecidable(NOTHING_WAITS)
    refund = PolicyRefund.of(anomaly)
    with transaction.atomic():
        Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
        if not anomalies.approve(anomaly.pk, refund=refund):
            raise _decided(anomaly)
        rederive(refund.payment_id)  # a new version: the shopper's open page is renewed
        queue_refund(refund)
        name = {
            "refund": _("refund %(number)s of %(money)s") % {"number": refund.id.hex, "money": at_stake(anomaly)}
        }
        audit(anomaly, _("Approved %(refund)s") % name, by=by, result=_("queued."))
    return Result(done=True, sentences=[_("Approved: %(refund)s is sent to the provider now.") % name])


def decline(anomaly: Anomaly, *, by: Operator) -> Result:
    """Resolve the anomaly without a refund, with the operator's reason as the resolution.

    Raises:
        NotDecidable: it was approved or declined before.

    Transaction: opens its own; locks the payment's row.
    """
    if (payment_id := anomaly.payment_id) is None:
        raise NotDecidable(NOTHING_WAITS)
    with transaction.atomic():
        Payment.objects.select_for_update(no_key=True).get(pk=payment_id)
        if not Anomaly.objects.get(pk=anomaly.pk).needs_approval:
            raise _decided(anomaly)
        anomalies.resolve(anomaly.pk, resolution=by.reason)
        rederive(payment_id)
        held = {"money": at_stake(anomaly)}
        audit(anomaly, _("Declined the refund of %(money)s") % held, by=by, result=_("nothing is refunded."))
    return Result(done=True, sentences=[_("Declined: %(money)s is not refunded.") % held])


def _decided(anomaly: Anomaly) -> NotDecidable:
    anomaly.refresh_from_db()
    if not anomaly.resolved_at:
        return NotDecidable(_("Nothing changed: it was decided before, and approved."))
    declined = _("Nothing changed: it was decided before, and declined: %(resolution)s")
    return NotDecidable(declined % {"resolution": anomaly.resolution})
