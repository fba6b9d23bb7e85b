"""PayPal's platform: tokens, orders, captures, refunds, webhooks, transactions."""
