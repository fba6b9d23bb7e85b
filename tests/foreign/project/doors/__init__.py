"""Other ways into the same effect: tokens of REST framework, a session's checkout, tasks."""
