"""The style sheet of a report's page, with the same colours as its picture."""

from __future__ import annotations

from typing import Final

PAGE_STYLE: Final = """
:root{--paper:#fff;--card:#f7f8fa;--ink:#1f2430;--faint:#6b7280;--line:#e3e6eb;--link:#4f6bed;--good:#1f9d6b;
--bad:#c93636;--warn:#a87700;--busy:#1583a3;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--paper:#12151b;--card:#1a1e26;--ink:#e6e9f0;--faint:#98a1b3;--line:#2b313d;
--link:#7f95ff;--good:#3ec28f;--bad:#f07070;--warn:#f2bd3a;--busy:#4cc4e8}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1040px;margin:0 auto;padding:32px 24px 64px}
header h1{margin:0 0 8px;font-size:28px;letter-spacing:-.01em}
header p{margin:4px 0;color:var(--faint)}
h2{font-size:17px;margin:36px 0 12px}
h3{font-size:12px;margin:0 0 6px;color:var(--faint);text-transform:uppercase;letter-spacing:.06em}
code,pre{font:13px/1.5 ui-monospace,Menlo,Consolas,monospace}
pre{margin:6px 0;padding:10px 12px;background:var(--card);border:1px solid var(--line);border-radius:8px;
white-space:pre-wrap;overflow-wrap:anywhere;max-height:440px;overflow-y:auto}
.faint,small,footer{color:var(--faint)}
.bad{color:var(--bad)}
.warning{color:var(--warn)}
.status{display:inline-block;padding:1px 10px;border-radius:999px;font-size:12px;font-weight:600;
vertical-align:middle;color:var(--faint);border:1px solid currentColor;letter-spacing:0;white-space:nowrap}
.completed,.succeeded,.final_response,.approve{color:var(--good)}
.failed,.error,.terminated,.timed_out{color:var(--bad)}
.stopped,.blocked,.denied,.cancelled,.canceled{color:var(--warn)}
.in_progress,.under_way,.running,.approval,.tool_execution{color:var(--busy)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:12px;margin:24px 0 0}
.figures div{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}
.figures dt{font-size:12px;color:var(--faint);text-transform:uppercase;letter-spacing:.06em}
.figures dd{margin:2px 0;font-size:13px}
.figures .value{font-size:22px;font-weight:600}
.meter{height:6px;border-radius:3px;background:var(--line);overflow:hidden;margin-top:8px!important}
.meter span{display:block;height:100%;background:var(--link)}
.meter.full span{background:var(--bad)}
.picture{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 10px;overflow-x:auto}
.picture svg{min-width:720px;display:block}
details{border:1px solid var(--line);border-radius:10px;margin:8px 0;padding:0 14px;background:var(--card)}
details[open]{padding-bottom:12px}
summary{cursor:pointer;padding:10px 0;display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline}
summary .grow{flex:1;min-width:120px;overflow-wrap:anywhere}
details pre{background:var(--paper)}
details p{margin:4px 0}
.call{border-left:3px solid var(--line);padding-left:12px;margin:10px 0}
.tree{list-style:none;padding-left:0}
.tree .tree{padding-left:22px;border-left:2px solid var(--line);margin-left:6px}
.tree li{margin:6px 0}
.why{color:var(--faint);margin:2px 0}
.said{border-left:3px solid var(--line);padding:2px 0 2px 14px;margin:14px 0;color:inherit}
.said.user{border-color:var(--link)}
.said.assistant{border-color:var(--good)}
.said.tool{border-color:var(--busy)}
table{border-collapse:collapse;font-size:13px}
td{padding:2px 18px 2px 0;vertical-align:top}
footer{margin-top:48px;font-size:13px}
@media print{details{break-inside:avoid}}
"""
