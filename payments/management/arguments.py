"""Kinds of arguments of the management commands."""

import argparse


def positive(text: str) -> int:
    """A whole number from 1. Raises what argparse tells the operator in a sentence."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
