"""Outlines that show where to press or type stand out from their ground, in light and dark."""

import re
from pathlib import Path

import pytest

SHEET = (Path(__file__).resolve().parents[4] / "shop" / "static" / "shop" / "payonce.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part)) for part in re.findall(r":root \{(.*?)\}", SHEET, re.S)
)


def luminance(colour: str) -> float:
    """Return the relative luminance, as WCAG 2.2 defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["surface", "paper"])
def test_an_outline_has_a_contrast_of_three_to_one(colours: dict[str, str], ground: str) -> None:
    darker, lighter = sorted(luminance(colours[name]) for name in ("edge", ground))
    assert (lighter + 0.05) / (darker + 0.05) >= 3


@pytest.mark.parametrize("part", [".button-quiet", ".field input", ".coupon select", ".line-quantity input"])
def test_buttons_and_fields_have_that_outline(part: str) -> None:
    [rule] = re.findall(rf"^{re.escape(part)} \{{(.*?)\}}", SHEET, re.S | re.M)
    assert "var(--edge)" in rule
