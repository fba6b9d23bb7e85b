"""PayPal's platform: tokens, orders, captures, refunds, webhooks and the search of transactions."""
