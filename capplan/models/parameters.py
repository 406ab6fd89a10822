"""Count a decoder's parameters from its dimensions.

Matrices, convolutions and embeddings are counted; norms and biases (below 0.1 %), draft layers and vision parts
are not. A layer is a mixer (attention, linear attention, Mamba2), a feed-forward part, or both.
"""

from dataclasses import dataclass

from capplan.models.layer_groups import LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Attention of one layer: query heads, KV heads, numbers of a key and of a value head.

    `query_parts` is 2 where queries come with an output gate; `own_values` is false where keys serve as values.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    query_parts: int = 1
    own_values: bool = True

    def count(self, hidden: int) -> int:
        """Parameters of the projections."""
        keys = self.kv_heads * self.key_dim
        values = self.kv_heads * self.value_dim * self.own_values
        query, out = self.heads * self.key_dim * self.query_parts, self.heads * self.value_dim
        return hidden * (query + keys + values + out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention of one layer; `q_rank` 0 is a query projection in one step."""

    heads: int
    key_dim: int
    value_dim: int
    rank: int
    rope_dim: int
    q_rank: int = 0

    def count(self, hidden: int) -> int:
        """Parameters of the projections."""
        queries = self.heads * self.key_dim
        query = self.q_rank * (hidden + queries) if self.q_rank else hidden * queries
        unfolded = self.rank * self.heads * (self.key_dim - self.rope_dim + self.value_dim)
        return query + hidden * (self.rank + self.rope_dim) + unfolded + self.heads * self.value_dim * hidden


def count_index(hidden: int, q_rank: int, heads: int, head_dim: int) -> int:
    """Parameters of one layer's index of sparse attention: queries from their latent, one key, head weights."""
    return q_rank * heads * head_dim + hidden * (head_dim + heads)


def count_state(hidden: int, group: LayerGroup) -> int:
    """Parameters of one layer of linear attention (gated delta) or Mamba2."""
    inner = group.state_heads * group.state_head_dim
    channels = inner + 2 * group.state_groups * group.state_size
    per_head = 2 if group.kind == "linear" else 1
    return hidden * (channels + inner + per_head * group.state_heads) + channels * group.conv_kernel + inner * hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Feed-forward parts of all layers.

    `dense_params` is the sum over plain MLPs; each of `moe_layers` has `experts` of `expert_matrices` matrices
    (3 if gated) between `expert_size` and the hidden size, or a latent of `expert_latent`, and shared experts of
    `shared_size` in all.
    """

    dense_params: int
    moe_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    expert_matrices: int = 3
    expert_latent: int = 0
    shared_size: int = 0

    def count_experts(self, hidden: int, n_routed: int) -> int:
        """Parameters of so many routed experts and of the shared ones, in every layer."""
        routed = n_routed * self.expert_size * (self.expert_latent or hidden)
        return self.moe_layers * self.expert_matrices * (routed + self.shared_size * hidden)

    def count_always(self, hidden: int) -> int:
        """Parameters outside experts: plain MLPs, routers, projections to the latent and back."""
        return self.dense_params + self.moe_layers * hidden * (self.experts + 2 * self.expert_latent)


def count_params(hidden: int, mixer_params: int, feed_forward: FeedForward, embedding_params: int) -> dict[str, object]:
    """Return the fields ``kind`` and the four parameter counts of a model spec.

    The split into linear, expert and embedding parameters is that of docs/model.md section 5 (2 FLOPs per
    linear parameter and token).
    """
    always = mixer_params + feed_forward.count_always(hidden)
    used = feed_forward.count_experts(hidden, feed_forward.experts_per_token)
    stored = feed_forward.count_experts(hidden, feed_forward.experts)
    return {
        "kind": "moe" if feed_forward.moe_layers else "dense",
        "total_params": always + stored + embedding_params,
        "active_params": always + used + embedding_params,
        "linear_params": always + used,
        "moe_linear_params": used,
    }
