"""Protocol vectors that others published, through our primitives."""

import json
from pathlib import Path
from typing import Any

import pytest

from payments.providers import rsa
from payments.providers.wechat.signing import answer_message


@pytest.fixture(scope="module")
def vector() -> dict[str, Any]:
    """A notification with its key, certificate and plain text; the file names its source."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "wechatpay_go_notification.json").read_text())
    return found


def test_the_signature_covers_every_byte(vector: dict[str, Any]) -> None:
    key = rsa.load_public_key(vector["certificate"].encode())

    def verifies(body: str, signature: str) -> bool:
        message = answer_message(timestamp=vector["timestamp"], nonce=vector["nonce"], body=body.encode())
        return rsa.verifies(message, signature, key)

    assert verifies(vector["body"], vector["signature"])
    assert not verifies(vector["body"] + " ", vector["signature"])
    assert not verifies(vector["body"], "A" + vector["signature"][1:])


def test_the_resource_decrypts_to_the_published_plain_text(vector: dict[str, Any]) -> None:
    resource = json.loads(vector["body"])["resource"]
    plain = rsa.decrypt(
        resource["ciphertext"],
        key=vector["api_v3_key"].encode(),
        nonce=resource["nonce"].encode(),
        associated_data=resource["associated_data"].encode(),
    )
    assert plain.decode() == vector["plaintext"]
