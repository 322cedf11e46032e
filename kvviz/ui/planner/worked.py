"""A lecture's worked example, corrected in the open: the cache of Gemma 2 27B."""

import pandas as pd
import streamlit as st

from kvviz.geometry.worked import gemma2_27b
from kvviz.locale import N_
from kvviz.ui.shell import Page
from kvviz.units import size

_STEPS = {
    "stated": N_(
        "**As it is often stated.** {layers} layers × {heads} heads × {head_width} numbers × 2 bytes × 2 (K and V) = "
        "**{bytes} bytes** a token, {size}."
    ),
    "query_heads": N_(
        "**With the heads the model has.** It has {heads} query heads, not 30: **{bytes} bytes**, {size}, the figure "
        "the lecture gives."
    ),
    "kv_heads": N_(
        "**With the heads it stores.** Two query heads share one pair, so {heads} are cached: **{bytes} bytes**, "
        "{size}."
    ),
    "windows": N_(
        "**With its windows.** {window_layers} of the {layers} layers look back {window_tokens} tokens only. Up to "
        "there nothing changes ({bytes} bytes a token); beyond it a token costs **{beyond} bytes**, {beyond_size}."
    ),
}


def show(page: Page) -> None:
    """The view."""
    t, frame = page.t, gemma2_27b()
    for _, row in frame.iterrows():
        facts = row.to_dict() | {
            "bytes": f"{row['bytes_per_token']:,}",
            "size": size(row["bytes_per_token"]),
            "beyond": f"{row['bytes_per_token_beyond_window']:,}",
            "beyond_size": size(row["bytes_per_token_beyond_window"]),
            "window_tokens": f"{row['window_tokens']:,}" if pd.notna(row["window_tokens"]) else "",
        }
        st.markdown(t(_STEPS[row["case"]]).format(**facts))
    st.markdown(t("**How many tokens fit into 80 GB?** Makers' GB (10⁹ bytes) and GiB (2³⁰) are not the same."))
    names = {
        "case": t("reading"),
        "bytes_per_token": t("bytes a token"),
        "tokens_in_80_gb": t("tokens in 80 GB"),
        "tokens_in_80_gib": t("tokens in 80 GiB"),
    }
    readings = {
        "stated": t("as stated, 30 heads"),
        "query_heads": t("32 query heads"),
        "kv_heads": t("16 K and V heads"),
        "windows": t("and its windows"),
    }
    table = frame[list(names)].assign(case=frame["case"].map(readings)).rename(columns=names)
    number = st.column_config.NumberColumn(format="localized")
    columns = dict.fromkeys(table.columns[1:], number)
    st.dataframe(table, hide_index=True, key="worked_table", width="content", column_config=columns)
    st.caption(t("Nothing else is on the card here: no weights, no reserve. The first view counts those, too."))
