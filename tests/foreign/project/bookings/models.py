"""Guests of the project's own, and what they pay for."""

import os
from uuid import uuid4

from django.contrib.auth.models import AbstractUser
from django.db import models


class Guest(AbstractUser):
    """The project's own user."""


class Booking(models.Model):
    """A room for a night."""

    if os.environ.get("KEYS") == "numbers":
        id = models.BigAutoField(primary_key=True)
    else:
        id = models.UUIDField(primary_key=True, default=uuid4)
    guest = models.ForeignKey(Guest, on_delete=models.PROTECT, null=True)
    price_minor = models.PositiveIntegerField()
    status = models.CharField(max_length=16, default="open")
    paid_times = models.PositiveIntegerField(default=0)
    version = models.PositiveIntegerField(default=1)
