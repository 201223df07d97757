"""Draws ratios as horizontal bars with a line at 1, as SVG. Knows nothing of what is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LABELS, BARS, NOTES = 240, 420, 200
ROW, TOP = 34, 64
AHEAD, BEHIND, INK, PALE = "#2f7d5b", "#c2553d", "#24292f", "#d0d7de"


@dataclass(frozen=True)
class Bar:
    """A ratio, what it is of, and the numbers behind it."""

    label: str
    ratio: float
    note: str


def svg(title: str, bars: Sequence[Bar]) -> str:
    """The picture."""
    end = axis_end(max((bar.ratio for bar in bars), default=1.0))
    width, height = LABELS + BARS + NOTES, TOP + ROW * len(bars) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="30" font-size="17" font-weight="bold">{escape(title)}</text>',
    ]
    bottom = TOP + ROW * len(bars)
    for tick in ticks(end):
        x = LABELS + BARS * tick / end
        parts.append(f'<path d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{PALE}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{tick:g}</text>')
    for number, bar in enumerate(bars):
        parts += bar_parts(bar, TOP + ROW * number, BARS / end)
    x = LABELS + BARS / end
    parts.append(f'<path d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{INK}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>", ""])


def bar_parts(bar: Bar, y: float, scale: float) -> list[str]:
    """One bar with its label, its ratio and its note."""
    colour = AHEAD if bar.ratio >= 1 else BEHIND
    return [
        f'<text x="{LABELS - 12}" y="{y + 18}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{LABELS}" y="{y + 4}" width="{bar.ratio * scale:.1f}" height="{ROW - 12}" '
        f'fill="{colour}"/>',
        f'<text x="{LABELS + bar.ratio * scale + 6:.1f}" y="{y + 18}" font-weight="bold">'
        f"{bar.ratio:.2f}</text>",
        f'<text x="{LABELS + BARS + 50}" y="{y + 18}" font-size="11">{escape(bar.note)}</text>',
    ]


def axis_end(largest: float) -> float:
    """Where the axis ends: room for the largest ratio and its number."""
    return max(1.25, largest * 1.02)


def ticks(end: float) -> list[float]:
    """A handful of round numbers along the axis."""
    step = next(step for step in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if end / step <= 8)
    return [step * number for number in range(int(end / step) + 1)]
