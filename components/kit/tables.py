"""Tables as every page shows them: help on each column, sortable, searchable, with a CSV download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

ROWS = 5_000
"""More are not sent to the browser."""
CELL_CHARACTERS = 400


def draw_table(rows: list[dict[str, Any]], helps: Mapping[str, str], key: str, empty: str) -> None:
    """``rows`` under the columns of ``helps`` (name -> what it means), or the sentence ``empty``."""
    if not rows:
        st.text(empty)
        return
    columns = {name: st.column_config.Column(help=text or None) for name, text in helps.items()}
    frame = pd.DataFrame(rows[:ROWS], columns=list(helps)).convert_dtypes()
    st.dataframe(frame, hide_index=True, column_config=columns, key=key)
    if len(rows) > ROWS:
        st.caption(f"The first {ROWS:,} of {len(rows):,} rows.")


def plain_text(value: Any) -> str:
    """Plain data in one cell: numbers short, a missing gradient by its name."""
    text = "None" if value is None else value if isinstance(value, str) else json.dumps(_rounded(value))
    return text if len(text) <= CELL_CHARACTERS else text[:CELL_CHARACTERS] + " …"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.6g}")
        case list():
            return [_rounded(item) for item in value]
        case dict():
            return {key: _rounded(item) for key, item in value.items()}
    return value
