"""Protocol of a keyed call, from claim to answer (`execute`), and its two modes.

In: a request and a handler. Out: the handler's answer, or the stored one. Never: serializers, SQL; HTML but for
`problem_pages`. The doors, `webhooks`, `maintenance`, the admin and its commands come in; templates for `tokens`.
"""
