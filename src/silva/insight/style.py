"""The look of silva's pages: one style sheet, light and dark by the reader's own setting."""

_LIGHT = """
  --paper: #fbfbf9; --card: #ffffff; --ink: #1c2421; --soft: #5d6b66; --line: #e3e7e3;
  --leaf: #2f7d4f; --leaf-soft: #dcefe2; --amber: #b4690e; --amber-soft: #f8e8d0; --red: #b3372f;
"""
_DARK = """
  --paper: #121715; --card: #1a211e; --ink: #e6ece8; --soft: #93a29b; --line: #2b3530;
  --leaf: #67c58b; --leaf-soft: #1f3a2a; --amber: #e2a24a; --amber-soft: #3a2d17; --red: #ef8078;
"""
_MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'

_EXPLAIN = """
.plan, .plan ul, .decisions, .decisions ul { list-style: none; margin: 0; padding: 0; }
.plan li { padding: 2px 0; overflow-wrap: anywhere; }
.plan code { white-space: pre-wrap; }
.plan .stage { margin: 4px 0; padding: 6px 10px; border-left: 3px solid var(--leaf);
  background: var(--leaf-soft); border-radius: 0 6px 6px 0; }
.plan .branch { margin: 4px 0 4px 10px; padding-left: 10px; border-left: 1px solid var(--line); }
.plan s { color: var(--soft); text-decoration-color: var(--red); }
.decisions > li { padding: 4px 0; }
.decisions ul { padding-left: 16px; color: var(--soft); font-size: 13px; }
.decisions .gain { color: var(--leaf); font-weight: 560; }
.decisions .unused { color: var(--amber); }
.plan .moved::after { content: "moved"; margin-left: 8px; padding: 0 6px; border-radius: 8px;
  background: var(--leaf); color: var(--card); font: 11px/1.5 system-ui, sans-serif; }
.two + .panel { margin-top: 12px; }
.note, .panel > p.note { margin: 4px 0; color: var(--soft); font-size: 13.5px; }
.measured .bar { width: 18%; }
.measured code { white-space: pre-wrap; overflow-wrap: anywhere; }
.measured .operator { padding-left: 18px; color: var(--soft); }
.measured .now td { font-weight: 560; }
"""
"""Plans, decisions and measurements: on pages and in notebooks alike."""

CSS = (
    f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 28px 72px; }
header p { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: .04em; }
h1 { margin: 6px 0 26px; font-size: 25px; line-height: 1.3; font-weight: 620; max-width: 44em; }
h2 { margin: 40px 0 12px; font-size: 17px; font-weight: 620; }
h3 { margin: 0; font-size: 15px; font-weight: 620; }
code, pre {
  font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
h1 code { font-size: .84em; background: var(--leaf-soft); padding: 1px 6px; border-radius: 5px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.card { padding: 14px 16px; }
.card b { display: block; font-size: 22px; font-weight: 620; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.panel { padding: 16px 18px; margin-bottom: 12px; }
.panel > p { margin: 2px 0 12px; color: var(--soft); font-size: 13.5px; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 12px; }
.two .panel { margin: 0; min-width: 0; }
.panel pre { margin: 10px 0 0; overflow-x: auto; }
pre.state { max-height: 320px; overflow: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 560; color: var(--soft); }
th, td { padding: 7px 12px 7px 0; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child > * { border-top: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
table.steps { table-layout: fixed; }
td.bar { width: 26%; }
.steps td.number { width: 84px; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
.track { height: 9px; margin-top: 7px; border-radius: 5px; background: var(--leaf-soft); }
.fill { height: 9px; border-radius: 5px; background: var(--leaf); min-width: 2px; }
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
    + _EXPLAIN
)
"""Of a whole page."""


def _within(sheet: str, scope: str) -> str:
    """A style sheet whose rules hold only inside `scope`.

    >>> _within("a, b { x: y; }", ".here").strip()
    '.here a, .here b { x: y; }'
    """
    rules = []
    for rule in sheet.split("}"):
        names, brace, body = rule.partition("{")
        if brace:
            scoped = ", ".join(f"{scope} {name.strip()}" for name in names.split(","))
            rules.append(f"{scoped} {{{body}}}")
    return "\n".join(rules)


_PIECES = """
h3 { margin: 0 0 8px; font-size: 14px; font-weight: 620; color: var(--ink); }
code { font-family: MONO; font-size: 12px; background: none; color: inherit; padding: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.card { padding: 10px 12px; }
.card b { display: block; font-size: 18px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 12.5px; }
.panel { padding: 12px 14px; margin: 10px 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 10px; }
.two .panel { margin: 0; min-width: 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; color: var(--ink); }
tr, th, td { background: none; }
th { text-align: left; font-weight: 560; color: var(--soft); }
th, td { padding: 5px 10px 5px 0; border-top: 1px solid var(--line); vertical-align: top;
  text-align: left; }
tr:first-child th { border-top: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.track { height: 8px; margin-top: 6px; border-radius: 5px; background: var(--leaf-soft); }
.fill { height: 8px; border-radius: 5px; background: var(--leaf); min-width: 2px; }
""".replace("MONO", _MONO)

_FONT = "font: 14px/1.5 system-ui, sans-serif"
FRAGMENT = f"""
.silva {{ color-scheme: light dark; {_LIGHT} color: var(--ink); {_FONT}; max-width: 1080px; }}
@media (prefers-color-scheme: dark) {{ .silva {{ {_DARK} }} }}
{_within(_PIECES + _EXPLAIN, ".silva")}
"""
"""Of a part of somebody else's page: nothing outside it is touched."""
