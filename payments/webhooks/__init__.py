"""Webhooks: notifications verified, stored, settled and only then acknowledged.

Never: an outbound call, or a row for what is not genuine. Used by the API's views and by operators.
"""
