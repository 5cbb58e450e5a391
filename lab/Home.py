"""Entry: ``streamlit run lab/Home.py``. Puts the repository on the path, then routes."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Streamlit puts lab/ on the path, where our modules could shadow the standard library's.
sys.path[:] = [str(ROOT), *(p for p in sys.path if p not in (str(ROOT), str(ROOT / "lab")))]
os.environ.setdefault("PYTHONPATH", str(ROOT))  # workers are started with it

import streamlit as st

from components.navigation import navigation, tab_title

icon = str(ROOT / "components/frame/icon.png")
st.set_page_config(
    page_icon=icon
)  # before the navigation: its page icon would be fetched from another host for the tab
page = st.navigation(navigation(), position="top")  # a sidebar would take its width from the figures
st.set_page_config(tab_title(page.title), icon, "wide")
page.run()
