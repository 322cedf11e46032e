"""Sentences that several sections of the Attention page share: which heads are shown, what grey means, the pooling."""

from kvviz.locale import Translate
from kvviz.summary import AttentionSummary

HEADS_NAMED = 8  # heads that share a K/V head, written out


def heads_sentence(t: Translate, summary: AttentionSummary, layer: int, head: int | str) -> str:
    """Which layer and head, and with which others it shares its keys and values."""
    if head == "mean":
        return t("Layer {layer}, mean over its heads.").format(layer=layer)
    if head == "max":
        return t("Layer {layer}, the largest of its heads in every cell.").format(layer=layer)
    kv = kv_heads(summary, layer)
    others = [other for other, group in enumerate(kv) if group == kv[head] and other != head]
    if not others:
        told = t("Layer {layer}, query head {head}, which has its own K and V.")
        return told.format(layer=layer, head=head)
    told = t("Layer {layer}, query head {head}: it reads KV head {kv}, as do the query heads {others}.")
    names = ", ".join(map(str, others[:HEADS_NAMED])) + (" …" if len(others) > HEADS_NAMED else "")
    return told.format(layer=layer, head=head, kv=kv[head], others=names)


def kv_heads(summary: AttentionSummary, layer: int) -> list[int]:
    """For each query head of a layer the K/V head it reads."""
    heads = summary.heads()
    return heads.loc[heads["layer"] == layer, "kv_head"].tolist()


def ground_sentence(t: Translate) -> str:
    """What the grey of a map means."""
    return t("Grey is not zero: there a query may not look, because the key comes later or has left its window.")


def pooling_sentence(t: Translate, rows: int, columns: int) -> str:
    """What a cell stands for, where it stands for more than one pair of tokens."""
    return t("Each cell is the largest of {rows} × {columns} values.").format(rows=rows, columns=columns)
