"""Words that axes, captions and components share, marked for the catalogues."""

from kvviz.locale import N_

LAYER_KINDS = {
    "full": N_("full attention"),
    "sliding": N_("sliding window"),
    "chunked": N_("chunked attention"),
    "linear": N_("fixed state, no K and V"),
    "shared": N_("uses another layer's K and V"),
    "none": N_("no attention"),
}

PHASES = {"prefill": N_("prefill"), "decode": N_("decode"), "recompute": N_("without cache")}
