"""How far K and V of the two prompts are apart: everywhere, and in two equal tokens."""

from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvviz.figures.prefix import cell_size, pair_distances
from kvviz.figures.prefix import distance_map as figure_of
from kvviz.locale import Translate
from kvviz.palette import Theme
from kvviz.prefix.pair import PrefixReuse
from kvviz.ui.prefix.pair_inputs import PairWanted
from kvviz.ui.prefix.parting import Parting, labels
from kvviz.ui.shell import Page


class Picture(NamedTuple):
    """A figure and the sentences that belong to it."""

    figure: go.Figure
    told: list[str]


def distance_map(page: Page, reuse: PrefixReuse) -> None:
    """The map of both prompts, layers by positions."""
    t = page.t
    st.subheader(t("Where are K and V the same, and where not?"), anchor=False)
    picture = map_picture(t, page.theme, reuse)
    if picture is None:
        st.caption(no_tokens(t))
        return
    alt = t("Distance of keys and of values, layers by positions")
    st.plotly_chart(picture.figure, theme=None, key="prefix_map", alt=alt)
    st.caption(" ".join(picture.told))


def no_tokens(t: Translate) -> str:
    """Instead of a map, for models that are all state."""
    return t("This model keeps no K and V of single tokens, so there is nothing to compare token by token.")


def map_picture(t: Translate, theme: Theme, reuse: PrefixReuse) -> Picture | None:
    """The map; None where no layer has K and V of single tokens."""
    frame = reuse.distances()
    if frame.empty:
        return None
    names = labels(Parting(reuse.first, reuse.second))
    shared = frame.loc[frame["position"] < reuse.shared, ["key", "value"]].to_numpy()
    told = [
        t("The dotted line is the end of the shared prefix. A distance is |a − b| over the mean of |a| and |b|: 0 is "
          "the same, 1.4 is what unrelated vectors have, 2 is opposite.")
    ]  # fmt: skip
    if shared.size:
        rounding = t("Up to the line the largest is {most}: rounding.").format(most=f"{shared.max():.1g}")
        told.append(rounding if shared.max() else t("Up to the line all are exactly 0."))
    cell = cell_size(len(names))
    if cell > 1:
        told.append(t("Each column is the largest of {count} neighbouring positions.").format(count=cell))
    return Picture(figure_of(frame, names, reuse.shared, t, theme), told)


def equal_tokens(page: Page, wanted: PairWanted, reuse: PrefixReuse) -> None:
    """Two equal tokens past the shared prefix, beside each other."""
    t = page.t
    if not reuse.pairs or reuse.distances().empty:
        return
    st.subheader(t("The same token in both prompts: can its K and V be taken?"), anchor=False)
    options = list(range(len(reuse.pairs)))
    if st.session_state.get("prefix_pair_of") != wanted or "prefix_pair_shown" not in st.session_state:
        st.session_state["prefix_pair_shown"], st.session_state["prefix_pair_of"] = default_pair(reuse), wanted
    left, right = st.columns([2, 3], gap="large")
    with left:
        chosen = st.selectbox(
            t("Equal tokens"), options, format_func=lambda at: pair_name(t, reuse, at), key="prefix_pair_shown"
        )
        picture = pair_picture(t, page.theme, reuse, chosen)
        with st.container(key="prefix_pair_told"):
            for line in picture.told:
                st.text(line)
    alt = t("Distance of the two tokens' keys and values, layer by layer")
    right.plotly_chart(picture.figure, theme=None, key="prefix_pair_distances", alt=alt)


def default_pair(reuse: PrefixReuse) -> int:
    """The last pair at the same place in both, where nothing but what stands before differs; else the last."""
    same = [at for at, (one, two) in enumerate(reuse.pairs) if one == two]
    return (same or [len(reuse.pairs) - 1])[-1]


def pair_name(t: Translate, reuse: PrefixReuse, at: int) -> str:
    """“金”, and where it stands."""
    one, two = reuse.pairs[at]
    label = reuse.second.tokens[two].label
    if one == two:
        return t("“{label}” at position {place} of both").format(label=label, place=two)
    told = t("“{label}” at position {first} of the first, {second} of the second")
    return told.format(label=label, first=one, second=two)


def pair_picture(t: Translate, theme: Theme, reuse: PrefixReuse, at: int) -> Picture:
    """The distances of one pair by layer, both tokens in their places, and the sentence that explains them."""
    one, two = reuse.pairs[at]
    frame = reuse.equal_tokens().iloc[at :: len(reuse.pairs)]
    told = [
        t("first:") + f" … {before(reuse.first.tokens, one)} [{reuse.first.tokens[one].label}]",
        t("second:") + f" … {before(reuse.second.tokens, two)} [{reuse.second.tokens[two].label}]",
        explained(t, frame),
    ]
    return Picture(pair_distances(frame, t, theme), told)


def before(tokens: tuple, at: int, most: int = 8) -> str:
    """The labels of the tokens before one, apart from each other where some are bytes."""
    there = tokens[max(0, at - most) : at]
    return (" " if any(token.kind == "bytes" for token in there) else "").join(token.label for token in there)


def explained(t: Translate, frame: pd.DataFrame) -> str:
    """Why equal tokens have other K and V, in the numbers of the first and the last layer."""
    first, last = frame.iloc[0], frame.iloc[-1]
    end = t(
        "In layer {layer} K differs by {key} and V by {value}: on the way there every layer has mixed in what stands "
        "before the token, and that is not the same. Equal tokens, other K and V."
    ).format(layer=int(last["layer"]), key=f"{last['key']:.2f}", value=f"{last['value']:.2f}")
    if first["layer"] > 0 or len(frame) < 2:
        return end
    begin = t(
        "In layer 0 K differs by {key} and V by {value}: there both are made of the token and its place alone."
    ).format(key=f"{first['key']:.2g}", value=f"{first['value']:.2g}")
    return f"{begin} {end}"
