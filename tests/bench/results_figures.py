# SPDX-License-Identifier: Apache-2.0
"""The two figures of docs/results.md, as SVG that follows the reader's light or dark theme. `results.py --page` writes them."""
import html
import math

STYLE = """<style>
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328 }
.head { font-weight: bold; font-size: 14px }
.soft { fill: #59636e }
.axis { stroke: #59636e; fill: none }
.grid { stroke: #d1d9e0; fill: none }
.full { stroke: #1f2328; stroke-dasharray: 2 3; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .soft { fill: #9198a1 }
  .axis { stroke: #9198a1 }
  .grid { stroke: #3d444d }
  .full { stroke: #e6edf3 }
}
</style>"""
# Colours that stand out from white and from black. With the dashes no two lines look the same.
COLOURS = ("#2f81d8", "#d9730d", "#1a9c6b", "#d8405a", "#9a63d6", "#12a0b8", "#a5793a", "#7d8590", "#c94fb0", "#7a9a01")
DASHES = ("", "7 3", "2 3")


def text(x, y, said, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(said)}</text>'


def line(points, kind="", **style):
    words = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in style.items() if value != "")
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{kind}" fill="none" {words}/>'


def dot(x, y, colour, hollow=False):
    fill = "none" if hollow else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'


def svg(width, height, about, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
            f"<title>{html.escape(about)}</title>\n{STYLE}\n" + "\n".join(parts) + "\n</svg>\n")


def by_bytes(models, names):
    """Score over the bytes held, a panel a model and a line a method: rows of `short` by the model's title."""
    names = [*names, "streaming"]
    width, high, left, wide, gap = 960, 300, 48, 330, 56
    parts = []
    for panel, (title, rows) in enumerate(models.items()):
        x0, y0 = left + panel * (wide + gap), 40

        def at(share, score):
            return x0 + wide * (math.log2(share) + 4) / 4, y0 + high * (1 - score)

        parts += [text(x0, 20, title, "head"), text(x0 - 6, y0 - 12, "score", "soft", "end")]
        for share in (0.0625, 0.125, 0.25, 0.5, 1):
            parts += [line([at(share, 0), at(share, 1)], "grid"), text(*at(share, -0.06), f"{100 * share:.3g} %", "soft", "middle")]
        for score in (0, 0.25, 0.5, 0.75, 1):
            parts += [line([at(0.0625, score), at(1, score)], "grid"), text(x0 - 6, at(1, score)[1] + 4, f"{score:g}", "soft", "end")]
        full = rows["full"]["score"]["mean"]
        parts += [line([at(0.0625, full), at(1, full)], "full"), text(x0 + wide / 2, y0 + high + 36, "bytes held after the prompt", "soft", "middle")]
        for i, name in enumerate(names):
            found = sorted((row["kept_share"], row["score"]["mean"]) for policy, row in rows.items()
                           if policy.partition(":")[0] == name and set(part.partition("=")[0] for part in policy.partition(":")[2].split(",")) <= {"budget", "recent"}
                           and 0.0625 <= row["kept_share"] <= 1)
            colour, dash = COLOURS[i % len(COLOURS)], DASHES[i // 4 % len(DASHES)]
            parts.append(line([at(*point) for point in found], stroke=colour, stroke_width=2, stroke_dasharray=dash))
            parts += [dot(*at(*point), colour) for point in found]
    x0 = left + len(models) * (wide + gap) - 20
    parts += [line([(x0, 52), (x0 + 28, 52)], "full"), text(x0 + 36, 56, "full cache")]
    for i, name in enumerate(names):
        y, colour, dash = 76 + 24 * i, COLOURS[i % len(COLOURS)], DASHES[i // 4 % len(DASHES)]
        parts += [line([(x0, y), (x0 + 28, y)], stroke=colour, stroke_width=2, stroke_dasharray=dash), dot(x0 + 14, y, colour), text(x0 + 36, y + 4, name)]
    return svg(width, y0 + high + 48, "Score against the bytes of the cache that are held", parts)


def dots(models, names):
    """Scores with their intervals, those that are best with the first model first; the other model's beside them."""
    first = next(iter(models.values()))
    names = sorted((name for name in names if name in first), key=lambda name: -first[name]["score"]["mean"])
    left, wide, gap, step, top = 250, 300, 64, 22, 58
    parts, high = [], step * len(names)
    for i, name in enumerate(names):
        parts.append(text(left - 10, top + step * (i + 0.5) + 4, name.replace("simlayerkv:threshold=0.9,recent=256", "simlayerkv:…"), "", "end"))
    for panel, (title, rows) in enumerate(models.items()):
        x0 = left + panel * (wide + gap)
        parts.append(text(x0, 20, title, "head"))
        parts.append(text(x0 + wide + 10, top - 8, "held", "soft"))
        for score in (0, 0.25, 0.5, 0.75, 1):
            x = x0 + wide * score
            parts += [line([(x, top), (x, top + high)], "grid"), text(x, top + high + 16, f"{score:g}", "soft", "middle")]
        full = x0 + wide * rows["full"]["score"]["mean"]
        parts += [line([(full, top), (full, top + high)], "full"), text(full - 6, top - 8, "full cache", "soft", "end")]
        parts.append(text(x0 + wide / 2, top + high + 34, "score, with its 95 % interval", "soft", "middle"))
        for i, name in enumerate(names):
            if name not in rows:
                continue
            y, score, colour = top + step * (i + 0.5), rows[name]["score"], COLOURS[panel]
            parts.append(line([(x0 + wide * score["low"], y), (x0 + wide * score["high"], y)], stroke=colour, stroke_width=2))
            parts += [dot(x0 + wide * score["mean"], y, colour), text(x0 + wide + 10, y + 4, f"{100 * rows[name]['kept_share']:.0f} %", "soft")]
    return svg(left + len(models) * (wide + gap), top + high + 46, "Scores of policies that hold about a quarter of the cache", parts)
