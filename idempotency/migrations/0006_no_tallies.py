"""Hourly counts for the admin's charts go: Prometheus counts requests, and the ledger itself has what was executed."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("idempotency", "0005_epoch")]

    operations = [migrations.DeleteModel(name="LedgerTally")]
