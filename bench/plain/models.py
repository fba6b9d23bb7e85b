"""The business of the benchmark: one row a request."""

from django.db import models


class Order(models.Model):
    """`reference` is the caller's; the faults count the rows of each."""

    reference = models.CharField(max_length=64)
    amount = models.IntegerField()
