"""Kinds of arguments of the management commands."""

import argparse
import math


def positive(text: str) -> int:
    """Parse a whole number from 1; raise argparse's error, which is shown to the operator."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def seconds(text: str) -> float:
    """Parse a finite number of seconds from 0; raise as `positive`."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds, 0 or more")
    return number
