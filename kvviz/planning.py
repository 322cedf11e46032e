"""Plans for models that are named, described or loaded: what `kvviz.plan` gives."""

from collections.abc import Sequence

from kvviz.errors import Refused
from kvviz.geometry import checked as verdicts
from kvviz.geometry import fields, vllm
from kvviz.geometry.checked import Checked
from kvviz.geometry.dtypes import Dtype, dtype_of
from kvviz.geometry.layers import KNOWN_KINDS, LayerShape, layer_shapes
from kvviz.geometry.limits import MOST_TOKENS, MOST_USERS, whole
from kvviz.geometry.plan import Note, Plan
from kvviz.locale import N_
from kvviz.models.configs import Described, describe
from kvviz.models.meta import observe

_ASSUMED = N_("The configuration leaves out {fields}; transformers' defaults for {kind} stand in for them.")
_LANGUAGE_PART = N_("Parameters are those of the language model, without the parts that read images or sound.")
_NO_STATE = N_("{count} layers keep a state whose size is not known and not counted.")


def plan(
    model: object,
    tokens: int = 8192,
    batch: int = 1,
    dtype: str | Dtype = "bfloat16",
    *,
    weights_dtype: str | Dtype = "bfloat16",
    check: bool = True,
    block: int = vllm.BLOCK,
    in_flight: int = vllm.IN_FLIGHT,
) -> Plan:
    """Plan the cache of a model from its configuration; weights are neither needed nor fetched.

    `model`: a preset (`kvviz.models.presets.presets()`), a packaged model's name, a folder, a config.json file, JSON
    text, a dict, a transformers config, a loaded model, or a hub id (of which the config.json alone is fetched).
    `dtype` and `weights_dtype` are names in `kvviz.geometry.dtypes.DTYPES`. With `check` the modelling code is run on
    the meta device, once a configuration: it checks the formula and counts the parameters. `block` and `in_flight`
    are vLLM's block_size and max_num_batched_tokens. Raises Refused for what is no configuration and makes no sense.
    """
    found = describe(model)
    whole("tokens", tokens, 0, MOST_TOKENS)
    whole("batch", batch, 1, MOST_USERS)
    whole("block", block, 1, MOST_TOKENS)
    whole("in_flight", in_flight, 1, MOST_TOKENS)
    formats = dtype_of(dtype), dtype_of(weights_dtype)
    shapes, verdict, parameters = _looked_at(found, check)
    unknown = next((shape.kind for shape in shapes if shape.kind not in KNOWN_KINDS), None)
    if unknown:
        raise Refused("This model has layers of the kind {kind}, for which there is no formula here.", kind=unknown)
    context = getattr(found.config, "max_position_embeddings", None) or found.fields.get("max_position_embeddings")
    return Plan(
        found.title,
        found.source,
        tokens,
        batch,
        *formats,
        tuple(shapes),
        parameters,
        context if isinstance(context, int) else None,
        verdict,
        tuple(_notes(found, shapes)),
        block,
        in_flight,
    )


def _looked_at(found: Described, check: bool) -> tuple[Sequence[LayerShape], Checked, int | None]:
    if found.config is None:
        return fields.shapes(found.fields), verdicts.formula_only(verdicts.UNKNOWN, kind=found.kind or "?"), None
    try:
        shapes = layer_shapes(found.config)
    except (AttributeError, TypeError, ZeroDivisionError) as error:
        raise Refused(
            "Models of type {kind} keep no keys and values that a formula here describes.", kind=found.kind
        ) from error
    if not check:
        return shapes, verdicts.formula_only(verdicts.NOT_ASKED), None
    seen = observe(found.config)
    shapes = verdicts.with_measured_states(shapes, seen.layers)
    verdict = verdicts.failed(seen.reason) if seen.reason else verdicts.compare(shapes, seen.tokens, seen.layers)
    return shapes, verdict, seen.parameters


def _notes(found: Described, shapes: Sequence[LayerShape]) -> list[Note]:
    notes = []
    if found.assumed and found.config is not None:
        notes.append(Note(_ASSUMED, {"fields": ", ".join(found.assumed), "kind": found.kind}))
    if found.has_encoders:
        notes.append(Note(_LANGUAGE_PART, {}))
    if unknown := sum(shape.state is None for shape in shapes):
        notes.append(Note(_NO_STATE, {"count": unknown}))
    return notes
