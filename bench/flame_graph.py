"""A flame graph as SVG, coloured by layer. Needs no script, so it can be read wherever an image is shown."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, ROW, TOP, SIDE = 1200, 16, 56, 8  # pixels
LETTER = 6.1  # about the width of one
SHORTEST_LABEL = 3  # letters; below it, only the tooltip tells
SMALLEST = 0.001  # share of all samples; what is rarer is not drawn
COLORS = ("#f2b5a0", "#f5d58a", "#b9d9f0", "#d9dee3", "#8fd0ae", "#c9b8e8", "#e8c39b")
NO_LAYER = "#eceff2"

Stacks = Counter[tuple[str, ...]]  # outermost frame first -> how often seen


@dataclass(slots=True)
class Frame:
    """A function as it was called from one place: how often it was on the stack, and what it called."""

    name: str
    layer: str | None
    count: int = 0
    called: "dict[str, Frame]" = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((frame.depth() for frame in self.called.values()), default=0)


def draw(stacks: Stacks, *, title: str, layer_of: Callable[[str], str | None], layers: Sequence[str]) -> str:
    """The graph: width is how often a function was on the stack, below it who called it.

    Args:
        stacks: what was seen.
        title: above the graph.
        layer_of: of a frame; one that has none takes its caller's colour.
        layers: all of them, in the legend's order.
    """
    root = _tree(stacks, layer_of)
    colors: dict[str | None, str] = dict(zip(layers, COLORS, strict=False))
    height = TOP + ROW * root.depth() + SIDE
    pixels = (WIDTH - 2 * SIDE) / max(root.count, 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="Verdana, DejaVu Sans, sans-serif" font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{WIDTH / 2:g}" y="20" font-size="14" text-anchor="middle">{escape(title)}</text>',
        *_legend(colors),
        *_boxes(root, SIDE, height - SIDE - ROW, pixels, colors, root.count),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _tree(stacks: Stacks, layer_of: Callable[[str], str | None]) -> Frame:
    root = Frame("all samples", None)
    for stack, count in stacks.items():
        place = root
        place.count += count
        for name in stack:
            if name not in place.called:
                place.called[name] = Frame(name, layer_of(name) or place.layer)
            place = place.called[name]
            place.count += count
    smallest = root.count * SMALLEST
    _prune(root, smallest)
    return root


def _prune(frame: Frame, smallest: float) -> None:
    frame.called = {name: one for name, one in sorted(frame.called.items()) if one.count >= smallest}
    for one in frame.called.values():
        _prune(one, smallest)


def _legend(colors: "dict[str | None, str]") -> Iterator[str]:
    x = float(SIDE)
    for layer, color in colors.items():
        assert layer is not None
        yield f'<rect x="{x:.0f}" y="32" width="11" height="11" fill="{color}"/>'
        yield f'<text x="{x + 15:.0f}" y="41">{escape(layer)}</text>'
        x += 15 + LETTER * len(layer) + 22


def _boxes(
    frame: Frame, x: float, y: float, pixels: float, colors: "dict[str | None, str]", total: int
) -> Iterator[str]:
    width = frame.count * pixels
    shown = f"{escape(frame.name)}: {frame.count / max(total, 1):.1%}"
    box = f'<rect x="{x:.1f}" y="{y:g}" width="{max(width - 0.4, 0.2):.1f}" height="{ROW - 1}"'
    text = _fitting(frame.name, int((width - 4) / LETTER))
    label = f'<text x="{x + 3:.1f}" y="{y + 11:g}">{escape(text)}</text>' if text else ""
    color = colors.get(frame.layer, NO_LAYER)
    yield f'<g><title>{shown}</title>{box} fill="{color}"/>{label}</g>'
    for called in frame.called.values():
        yield from _boxes(called, x, y - ROW, pixels, colors, total)
        x += called.count * pixels


def _fitting(name: str, letters: int) -> str:
    """The function and its file, or the function, or its beginning."""
    if letters < SHORTEST_LABEL:
        return ""
    if len(name) <= letters:
        return name
    function = name.partition(" (")[0]
    return function if len(function) <= letters else function[: letters - 1] + "…"
