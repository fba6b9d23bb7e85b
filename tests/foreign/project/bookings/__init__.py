"""A hotel whose guests pay for their rooms."""
