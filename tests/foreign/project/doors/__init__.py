"""Other ways into the same effect: Django Ninja, REST framework, a checkout, Celery."""
