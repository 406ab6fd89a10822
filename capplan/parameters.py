"""Count a decoder's parameters from its dimensions.

Matrices and embeddings are counted; norms and biases (below 0.1 %), draft layers and vision parts are not.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Dimensions of a decoder.

    `key_dim` and `value_dim` are numbers per query/key and per value head in prefill; `dense_layers` have a
    plain MLP of `mlp_size` made of `mlp_matrices` matrices (3 if gated), the others experts of `expert_size`
    plus `shared_size` (all shared experts together). `kv_lora_rank` 0 means no MLA, `q_lora_rank` 0 a query
    projection in one step.
    """

    layers: int
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    attention_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    dense_layers: int
    mlp_size: int
    mlp_matrices: int = 3
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    shared_size: int = 0


def count_params(d: Dimensions) -> dict[str, int | str]:
    """Return the fields ``kind`` and the four parameter counts of a model spec.

    Sums of matrix sizes; the split into linear, expert and
    embedding parameters is that of docs/model.md section 5 (2 FLOPs per linear parameter and token).
    """
    moe_layers = d.layers - d.dense_layers
    embedding = d.vocab_size * d.hidden_size * (1 if d.tied_embeddings else 2)
    always = d.layers * _attention(d) + d.dense_layers * d.mlp_matrices * d.hidden_size * d.mlp_size
    always += moe_layers * d.hidden_size * d.experts
    used = moe_layers * 3 * d.hidden_size * (d.experts_per_token * d.expert_size + d.shared_size)
    stored = moe_layers * 3 * d.hidden_size * (d.experts * d.expert_size + d.shared_size)
    return {
        "kind": "moe" if moe_layers else "dense",
        "total_params": always + stored + embedding,
        "active_params": always + used + embedding,
        "linear_params": always + used,
        "moe_linear_params": used,
    }


def _attention(d: Dimensions) -> int:
    """Return the parameters of one layer's attention projections."""
    out = d.attention_heads * d.value_dim * d.hidden_size
    queries = d.attention_heads * d.key_dim
    if not d.kv_lora_rank:
        return d.hidden_size * (queries + d.kv_heads * (d.key_dim + d.value_dim)) + out
    query = d.q_lora_rank * (d.hidden_size + queries) if d.q_lora_rank else d.hidden_size * queries
    latent = d.hidden_size * (d.kv_lora_rank + d.rope_dim)
    unfolded = d.kv_lora_rank * d.attention_heads * (d.key_dim - d.rope_dim + d.value_dim)
    return query + latent + unfolded + out
