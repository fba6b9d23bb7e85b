"""Orders: the basket, placing, paying, cancelling, expiring, fulfilment.

Never stock's rows or payment's rows: `shop.stock` and the payments app write those. Used by every room above.
"""
