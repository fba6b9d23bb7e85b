"""Deliveries that a person sends again."""

from django.db import transaction
from django.utils.translation import gettext as _

from payments.conf import config
from payments.deliveries import sending
from payments.models import Delivery
from payments.operations.actions import NotDecidable, Operator, Result, audit


def send_again(row: Delivery, *, by: Operator) -> Result:
    """Make a delivery due now, and for three days more; a worker sends it.

    Raises NotDecidable: it is being sent at this moment, or its endpoint is gone.

    Transaction: opens its own.
    """
    if row.endpoint not in config().webhooks:
        raise NotDecidable(_("There is no endpoint %(name)s any more.") % {"name": row.endpoint})
    with transaction.atomic():
        if not sending.send_again(row.pk):
            raise NotDecidable(_("It is being sent at this moment. Look again."))
        audit(row, _("Sends it again"), by=by, result=_("due now."))
    return Result(done=True, sentences=[_("It is due now, and a worker sends it.")])
