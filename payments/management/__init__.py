"""Commands of operators: bills, notifications, reconciliation."""
