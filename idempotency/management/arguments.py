"""Kinds of arguments of the management commands."""

import argparse
import math


def positive(text: str) -> int:
    """A whole number from 1. Raises what argparse tells the operator in a sentence."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def seconds(text: str) -> float:
    """A time from 0 that ends. Raises as `positive`."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds, 0 or more")
    return number
