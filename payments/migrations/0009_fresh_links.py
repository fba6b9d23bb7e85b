"""How long a link or code can be used that was given out for a trade; WeChat's H5 links end after five minutes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0008_charge_of_a_refund")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="next_action_expires_at",
            field=models.DateTimeField(help_text="empty: as long as the trade can be paid", null=True),
        ),
    ]
