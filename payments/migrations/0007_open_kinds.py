from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0006_account")]

    operations = [
        migrations.AlterField("attempt", "method", models.CharField(max_length=16)),
        migrations.AlterField("attempt", "next_action_type", models.CharField(blank=True, max_length=16)),
    ]
