"""Events of Stripe's that are signed, and yet not ours."""

from collections.abc import Mapping

from payments.errors import SignatureInvalid


def must_be_of_our_mode(event: Mapping[str, object], *, secret_key: str) -> None:
    """Refuse an event of another mode, live or test, than our API key's: a shared endpoint gets both."""
    mode = secret_key.split("_")[1:2]
    # our endpoint's secret signed it, so an event without a mode is of the endpoint's mode
    if mode in (["live"], ["test"]) and event.get("livemode", mode == ["live"]) is not (mode == ["live"]):
        raise SignatureInvalid("an event of the other mode, live or test")
