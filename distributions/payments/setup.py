"""Dependencies of `payonce-payments`: `payonce` of the same `VERSION` is one."""

from pathlib import Path

from setuptools import setup

version = (Path(__file__).parent / "VERSION").read_text().strip()

setup(
    install_requires=[
        f"payonce=={version}",
        "cryptography>=44",
        "djangorestframework>=3.16",
        "drf-spectacular>=0.28",
        "httpcore>=1.0",
        "httpx>=0.28,<1",
        "procrastinate[django]>=3.9",  # before, a worker's jobs failed for good once their connection was lost
        "prometheus-client>=0.21",
        "stripe>=16",
    ]
)
