"""The style sheet of a report, in light and dark colors by the preference of the reader's system."""

from __future__ import annotations

from string import Template

#: Background, text and the colors of runs: hues of Okabe and Ito's palette, in enough contrast.
LIGHT = {
    "page": "#ffffff", "card": "#f5f6f8", "text": "#16191d", "soft": "#545b64", "rule": "#d5d9de",
    "run-0": "#0072b2", "run-1": "#d55e00", "run-2": "#008a64", "run-3": "#b8548c", "run-4": "#a87400",
    "run-5": "#2f86bb", "run-6": "#16191d",
}  # fmt: skip
DARK = {
    "page": "#14171b", "card": "#1d2126", "text": "#e6e8eb", "soft": "#a3abb5", "rule": "#3a4149",
    "run-0": "#3f9fe0", "run-1": "#f2803a", "run-2": "#1fb886", "run-3": "#dd92bf", "run-4": "#e6a91e",
    "run-5": "#8accf2", "run-6": "#e6e8eb",
}  # fmt: skip

_RULES = Template("""
:root { color-scheme: light dark; $light }
@media (prefers-color-scheme: dark) { :root { $dark } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
p, figcaption, caption { color: var(--soft); margin: .25rem 0; }
figcaption, summary, caption { font-size: .875rem; }
code { font: .8125rem/1.5 ui-monospace, monospace; white-space: pre-wrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { font-weight: 600; }
tbody th { font-weight: 400; color: var(--soft); }
td.long { overflow-wrap: anywhere; min-width: 9rem; }
.legend { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .125rem 1.25rem; margin: 1rem 0;
  padding: .5rem 0; list-style: none; background: var(--page); border-bottom: 1px solid var(--rule);
  max-height: 30vh; overflow-y: auto; }
.legend svg { width: 2.5rem; height: 1.125rem; vertical-align: middle; margin-right: .375rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; padding: .75rem; min-width: 0; background: var(--card); border-radius: .5rem; }
figure h3 { font-size: 1rem; margin: 0; }
figure > svg { display: block; width: 100%; height: auto; }
figure text { font-family: system-ui, sans-serif; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--soft); }
.run { border-top: 1px solid var(--rule); padding-top: .5rem; margin-top: 1rem; }
.run h3 { font-size: 1rem; margin: 0; }
@media print { .legend { position: static; } figure { break-inside: avoid; } }
""")


def style_sheet() -> str:
    """Return the rules of the page's ``<style>``."""
    light, dark = (" ".join(f"--{name}: {color};" for name, color in theme.items()) for theme in (LIGHT, DARK))
    return _RULES.substitute(light=light, dark=dark)
