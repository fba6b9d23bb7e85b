"""Guests of the project's own, and what they pay for."""

import os
from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models


class Guests(BaseUserManager["Guest"]):
    """Makes operators."""

    def create_superuser(self, name: str, password: str) -> "Guest":
        guest = self.model(name=name, is_superuser=True)
        guest.set_password(password)
        guest.save()
        return guest


class Guest(AbstractBaseUser, PermissionsMixin):
    """The project's own user: a name, which is the primary key, and nothing else."""

    name = models.CharField(max_length=64, primary_key=True)
    is_staff = True
    USERNAME_FIELD = "name"
    objects = Guests()


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
