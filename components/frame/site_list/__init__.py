"""The lines that take part in a finding: pointing at one lights it in the editor and in the figure's program.

The browser event ``lab-line`` carries the line, null when the pointer leaves; editor and figures listen. No rerun.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlit.components.v2 import component

from components.kit.modules import script
from lab.contract import Site

_HERE = Path(__file__).parent
_LIST = component(
    "lab_site_list",
    html='<ol class="sites"></ol>',
    css=(_HERE / "sites.css").read_text(),
    js=script(_HERE / "sites.js"),
)


def site_list(sites: Sequence[Site], *, key: str) -> None:
    """Draw them, the first with more weight; nothing for none."""
    if sites:
        _LIST(key=key, data={"sites": [{"line": site.line, "text": site_text(site)} for site in sites]})


def site_text(site: Site) -> str:
    """ "line 4 · overwritten here · p · version 0 → version 1"."""
    change = " → ".join(str(value) for value in (site.before, site.after) if value is not None)
    return " · ".join(part for part in (f"line {site.line}", site.role, site.tensor, change) if part)
