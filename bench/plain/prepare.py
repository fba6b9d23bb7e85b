"""Tables and caller of one server, made before it starts, by its own Python and settings."""

import django
from django.core.management import call_command

if __name__ == "__main__":
    django.setup()
    from django.contrib.auth.models import User

    call_command("migrate", run_syncdb=True, verbosity=0)
    User.objects.get_or_create(username="bench")  # one peer refers to the caller as a user
