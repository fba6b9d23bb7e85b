"""The business of the benchmark: one row a request."""

from django.db import models


class Purchase(models.Model):
    """`reference` is the caller's; the fault benchmark counts the rows of each."""

    reference = models.CharField(max_length=64)
    amount = models.IntegerField()
