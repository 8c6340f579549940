"""A run for people: what is known of it, read once, and its renderings in a terminal, HTML, Markdown and SVG."""

from typing import TYPE_CHECKING

from holdfast.core.base.safe_text import printable
from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.view.html import to_html
    from holdfast.view.markdown import to_markdown
    from holdfast.view.report import Report, RunExport, read_report, to_json_dict

__all__ = ["Report", "RunExport", "printable", "read_report", "to_html", "to_json_dict", "to_markdown"]

_PLACES = {
    "Report": "report",
    "RunExport": "report",
    "read_report": "report",
    "to_json_dict": "report",
    "to_html": "html",
    "to_markdown": "markdown",
}

__getattr__ = lazy_names(__name__, _PLACES, {"temporalio": "temporal", "obstore": "temporal"}, "reading a run")
