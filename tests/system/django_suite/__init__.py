"""Django's own tests of transactions, with transaction control that travels."""
