"""The style of silva's pages and fragments: one sheet, light or dark by the reader's setting."""

_LIGHT = """
  --paper: #fbfbf9; --card: #ffffff; --ink: #1c2421; --soft: #5d6b66; --line: #e3e7e3;
  --leaf: #2f7d4f; --leaf-soft: #dcefe2; --amber: #b4690e; --amber-soft: #f8e8d0; --red: #b3372f;
"""
_DARK = """
  --paper: #121715; --card: #1a211e; --ink: #e6ece8; --soft: #93a29b; --line: #2b3530;
  --leaf: #67c58b; --leaf-soft: #1f3a2a; --amber: #e2a24a; --amber-soft: #3a2d17; --red: #ef8078;
"""
_PIECES = """
h3 { margin: 0 0 8px; font-size: 14.5px; font-weight: 620; color: var(--ink); }
code, pre {
  font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: none; color: inherit; padding: 0; }
pre { margin: 8px 0 0; max-height: 320px; overflow: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 9px; }
.card { padding: 12px 14px; }
.card b { display: block; font-size: 20px; font-weight: 620; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.panel { padding: 14px 16px; margin: 10px 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 10px; }
.two .panel { margin: 0; min-width: 0; }
.note { margin: 4px 0; color: var(--soft); font-size: 13.5px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; color: var(--ink); }
tr, th, td { background: none; }
th { text-align: left; font-weight: 560; color: var(--soft); }
th, td { padding: 6px 11px 6px 0; border-top: 1px solid var(--line); vertical-align: top;
  text-align: left; }
tr:first-child > * { border-top: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
.measured .bar { width: 18%; }
.measured .operator { padding-left: 18px; color: var(--soft); }
.track { height: 8px; margin-top: 7px; border-radius: 5px; background: var(--leaf-soft); }
.fill { height: 8px; border-radius: 5px; background: var(--leaf); min-width: 2px; }
.plan, .plan ul, .decisions, .decisions ul { list-style: none; margin: 0; padding: 0; }
.plan li { padding: 2px 0; overflow-wrap: anywhere; }
.plan code { white-space: pre-wrap; }
.plan .stage { margin: 4px 0; padding: 6px 10px; border-left: 3px solid var(--leaf);
  background: var(--leaf-soft); border-radius: 0 6px 6px 0; }
.plan .branch { margin: 4px 0 4px 10px; padding-left: 10px; border-left: 1px solid var(--line); }
.plan s { color: var(--soft); text-decoration-color: var(--red); }
.plan .moved::after { content: "moved"; margin-left: 8px; padding: 0 6px; border-radius: 8px;
  background: var(--leaf); color: var(--card); font: 11px/1.5 system-ui, sans-serif; }
.decisions > li { padding: 4px 0; }
.decisions ul { padding-left: 16px; color: var(--soft); font-size: 13px; }
.decisions .gain { color: var(--leaf); font-weight: 560; }
.decisions .unused { color: var(--amber); }
"""
"""The pieces that pages and fragments share."""

_PAGE_PIECES = """
header p { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: .04em; }
h1 { margin: 6px 0 26px; font-size: 25px; line-height: 1.3; font-weight: 620; max-width: 44em; }
h1 code { font-size: .84em; background: var(--leaf-soft); padding: 1px 6px; border-radius: 5px; }
h2 { margin: 36px 0 12px; font-size: 17px; font-weight: 620; }
.error { color: var(--red); }
summary { cursor: pointer; color: var(--soft); font-size: 13px; }
.chart { width: 100%; height: auto; display: block; margin-top: 8px; }
.chart line { stroke: var(--line); }
.chart text { fill: var(--soft); font-size: 11.5px; font-family: inherit; }
.chart polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart polygon { stroke: none; }
.speed polyline { stroke: var(--leaf); } .speed polygon { fill: var(--leaf-soft); }
.wait polyline { stroke: var(--amber); } .wait polygon { fill: var(--amber-soft); }
footer { margin-top: 44px; color: var(--soft); font-size: 12.5px; }
"""


def _scoped(sheet: str) -> str:
    """A style sheet with rules that apply only inside of an element of class `silva`.

    >>> _scoped("a, b { x: y; }").strip()
    '.silva a, .silva b { x: y; }'
    """
    rules = []
    for rule in sheet.split("}"):
        names, brace, body = rule.partition("{")
        if brace:
            scoped = ", ".join(f".silva {name.strip()}" for name in names.split(","))
            rules.append(f"{scoped} {{{body}}}")
    return "\n".join(rules)


FRAGMENT = f"""
.silva {{ color-scheme: light dark; {_LIGHT} color: var(--ink); max-width: 1080px;
  font: 14.5px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
@media (prefers-color-scheme: dark) {{ .silva {{ {_DARK} }} }}
{_scoped(_PIECES)}
"""
"""The style of a fragment: nothing outside of it is touched."""

PAGE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
body {{ margin: 0; background: var(--paper); }}
main {{ margin: 0 auto; padding: 40px 28px 72px; }}
* {{ box-sizing: border-box; }}
{FRAGMENT}
{_scoped(_PAGE_PIECES)}
"""
"""The style of a whole page."""
