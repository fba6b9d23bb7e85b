"""Other ways into the same effect: Django Ninja, tokens of REST framework, a session's checkout, tasks."""
