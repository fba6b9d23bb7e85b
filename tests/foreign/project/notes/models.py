"""One table; nothing in it stops a second row."""

from django.db import models


class Note(models.Model):
    """A line that somebody left."""

    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text
