"""Protocol of a keyed call, from claim to answer (`execute`), and its two modes.

In: a request and a handler. Out: the handler's answer, or the stored one. Never: HTML, serializers, SQL. The doors
(`views`, `drf`, `middleware`) and `maintenance` come in; templates and pages for `tokens`.
"""
