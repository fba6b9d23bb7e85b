"""When a shopper last had the provider asked about an attempt, so that nobody can have it asked without end."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0013_who_tells_the_outcome")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="asked_at",
            field=models.DateTimeField(help_text="when a shopper last had the provider asked", null=True),
        ),
    ]
