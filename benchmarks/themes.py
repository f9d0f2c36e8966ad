"""Colours of charts on light and dark pages."""

from __future__ import annotations

import re

# name: (placeholder for matplotlib, on a light page, on a dark page)
COLOURS = {
    "ink": ("#010203", "#1f2328", "#e6edf3"),
    "soft": ("#020304", "#59636e", "#9198a1"),
    "line": ("#030405", "#d1d9e0", "#3d444d"),
    "ours": ("#040506", "#0969da", "#4493f8"),
    "baseline": ("#050607", "#818b98", "#9198a1"),
    "peer": ("#060708", "#c4ccd4", "#3d444d"),
    "second": ("#070809", "#bc4c00", "#db6d28"),
    "third": ("#08090a", "#8250df", "#ab7df8"),
}


def themed(svg: str) -> str:
    """Replace the placeholders by CSS variables that follow the colour scheme of the reader."""
    for name, (placeholder, light, _) in COLOURS.items():
        svg = svg.replace(placeholder, f"var(--{name}, {light})")
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    light = "".join(f"--{name}:{light};" for name, (_, light, _) in COLOURS.items())
    dark = "".join(f"--{name}:{dark};" for name, (_, _, dark) in COLOURS.items())
    style = f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + "\n" + style, svg, count=1)
