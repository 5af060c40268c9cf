"""Style and script of the page *State stores*."""

from __future__ import annotations

SCRIPT = """
// Airflow sets its theme as a class of its root element; follow it, also when it changes.
try {
  const root = parent.document.documentElement;
  const follow = () => { document.documentElement.className = root.className; };
  follow();
  new MutationObserver(follow).observe(root, {attributes: true, attributeFilter: ["class"]});
} catch (error) { /* not in a frame of the UI: the browser's preference applies */ }
// The frame may not navigate its parent page; a link in the parent page may.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || parent === window || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const own = parent.document.createElement("a");
  own.href = link.href;
  parent.document.body.append(own);
  own.click();
  own.remove();
});
"""

_DARK = """color-scheme: dark; --page: #000; --text: #fafafa; --faint: #a1a1aa; --line: #27272a; --head: #111113;
  --bad-page: #300c0c; --bad: #fca5a5; --note-page: #281f08; --note: #fde047; --link: #60a5fa;"""

STYLE = f"""
:root {{ color-scheme: light; --page: #fff; --text: #18181b; --faint: #52525b; --line: #e4e4e7; --head: #f4f4f5;
  --bad-page: #fef2f2; --bad: #991b1b; --note-page: #fefce8; --note: #713f12; --link: #1d4ed8; }}
:root.dark {{ {_DARK} }}
@media (prefers-color-scheme: dark) {{ :root:not(.light) {{ {_DARK} }} }}
body {{ margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 Inter, system-ui, -apple-system, "Segoe UI", sans-serif; }}
main {{ padding: 16px 24px; }}
h1 {{ font-size: 20px; margin: 0 0 12px; }}
h2 {{ font-size: 16px; margin: 0; }}
h1 + .facts {{ margin-top: -10px; }}
.wide + h2, p + h2 {{ margin-top: 24px; }}
h2 + .wide {{ margin-top: 8px; }}
section {{ margin: 0 0 32px; }}
p {{ margin: 0 0 10px; }}
a {{ color: var(--link); text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
form {{ display: flex; gap: 8px; flex-wrap: wrap; margin: 0 0 20px; }}
input, select, button {{ font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; padding: 4px 10px; }}
input {{ width: 280px; }}
button {{ background: var(--head); cursor: pointer; }}
nav {{ display: flex; gap: 16px; justify-content: center; color: var(--faint); }}
.facts {{ margin: 2px 0 10px; color: var(--faint); }}
.failure, .note {{ margin: 0 0 10px; padding: 8px 12px; border-radius: 6px; }}
.failure p, .note p {{ margin: 0 0 4px; overflow-wrap: anywhere; }}
.failure {{ background: var(--bad-page); color: var(--bad); }}
.note {{ background: var(--note-page); color: var(--note); }}
.failure a, .note a {{ color: inherit; text-decoration: underline; }}
.wide {{ overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: 0 0 10px; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: 6px 12px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }}
td.said {{ white-space: normal; min-width: 320px; }}
tbody tr:last-child td {{ border-bottom: 0; }}
th {{ background: var(--head); color: var(--faint); font-weight: 600; }}
tr.failed td {{ color: var(--bad); }}
tr.begun td {{ color: var(--note); }}
th.n, td.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
code {{ font: 12px ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere; }}
"""
