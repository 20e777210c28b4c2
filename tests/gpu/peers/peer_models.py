"""Models of the peers from the keys of ceilings.json: Transformers' classes, or plain PyTorch modules without that library.

A model is called with tokens [B, S] int64 and gives the mean loss of predicting each next token.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    """RMSNorm in fp32, its result in the input's dtype."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


class Attention(nn.Module):
    """Causal attention; with `rotary` heads are turned by their positions and keys may have fewer heads."""

    def __init__(self, shape, bias, rotary):
        super().__init__()
        self.heads, self.kv_heads = shape["heads"], shape.get("kv_heads", shape["heads"])
        self.head_dim = shape["hidden"] // self.heads
        self.queries_keys_values = nn.Linear(shape["hidden"], (self.heads + 2 * self.kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(self.heads * self.head_dim, shape["hidden"], bias=bias)
        self.rotary = rotary
        if rotary:
            rates = 1e4 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
            angles = torch.outer(torch.arange(shape["seq"]), rates)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x):
        low, high = x.chunk(2, dim=-1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)

    def forward(self, x):
        samples, tokens, _ = x.shape
        widths = [self.heads, self.kv_heads, self.kv_heads]
        parts = self.queries_keys_values(x).split([w * self.head_dim for w in widths], dim=-1)
        q, k, v = (p.view(samples, tokens, w, self.head_dim).transpose(1, 2) for p, w in zip(parts, widths))
        if self.rotary:
            q, k = self.turned(q), self.turned(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(mixed.transpose(1, 2).reshape(samples, tokens, -1))


class GeluMlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwigluMlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A block that recomputes itself: FSDP2 gathers a block once for its recomputation and its backward only from outside."""

    def __init__(self, shape, recompute):
        super().__init__()
        self.recompute = recompute
        gpt2, hidden = shape["type"] == "gpt2", shape["hidden"]
        self.before_attention, self.before_mlp = (nn.LayerNorm(hidden) if gpt2 else Norm(hidden) for _ in range(2))
        self.attention = Attention(shape, bias=gpt2, rotary=not gpt2)
        self.mlp = GeluMlp(hidden) if gpt2 else SwigluMlp(hidden, shape["ffn"])

    def both_halves(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.both_halves, x, use_reentrant=False) if self.recompute else self.both_halves(x)


class PlainModel(nn.Module):
    """GPT-2 or Llama as a PyTorch user would write it; the table is tied unless the shape says otherwise."""

    def __init__(self, shape, recompute):
        super().__init__()
        gpt2, hidden = shape["type"] == "gpt2", shape["hidden"]
        self.words = nn.Embedding(shape["vocab"], hidden)
        self.positions = nn.Embedding(shape["seq"], hidden) if gpt2 else None
        self.blocks = nn.ModuleList(Block(shape, recompute) for _ in range(shape["layers"]))
        self.norm = nn.LayerNorm(hidden) if gpt2 else Norm(hidden)
        self.head = nn.Linear(hidden, shape["vocab"], bias=False)
        if shape.get("tie_embeddings", True):
            self.head.weight = self.words.weight
        self.apply(self.begin)

    @staticmethod
    def begin(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, tokens)

    def loss(self, x, tokens):
        """In fp32 without autocast too.  The last token predicts nothing: a slice of the logits would be another copy of them."""
        targets = F.pad(tokens[:, 1:], (0, 1), value=-100)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    def compile_parts(self):
        """One block, which all share, and the loss: torch.compile of 48 blocks at once takes minutes.  FSDP2's hooks stay outside."""
        for block in self.blocks:
            block.both_halves = torch.compile(block.both_halves)
        self.loss = torch.compile(self.loss)


class ChunkedModel(PlainModel):
    """The plain model with the loss of a careful user: the logits of an eighth of the tokens at a time, made again in the backward."""

    CHUNKS = 8

    def loss(self, x, tokens):
        targets = F.pad(tokens[:, 1:], (0, 1), value=-100).flatten()
        parts = zip(self.norm(x).flatten(0, 1).chunk(self.CHUNKS), targets.chunk(self.CHUNKS))
        return sum(torch.utils.checkpoint.checkpoint(self.sum_of_part, *part, use_reentrant=False) for part in parts) / (targets != -100).sum()

    def sum_of_part(self, x, targets):
        return F.cross_entropy(self.head(x).float(), targets, reduction="sum")


class TransformersModel(nn.Module):
    """Transformers' class of the family with its own loss."""

    def __init__(self, shape, recompute):
        super().__init__()
        import transformers  # pylint: disable=import-outside-toplevel
        common = {"vocab_size": shape["vocab"], "use_cache": False, "attn_implementation": "sdpa"}
        if shape["type"] == "gpt2":
            config = transformers.GPT2Config(n_positions=shape["seq"], n_embd=shape["hidden"], n_layer=shape["layers"],
                                             n_head=shape["heads"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **common)
            self.model = transformers.GPT2LMHeadModel(config)
        else:
            config = transformers.LlamaConfig(hidden_size=shape["hidden"], num_hidden_layers=shape["layers"],
                                              num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
                                              intermediate_size=shape["ffn"], max_position_embeddings=shape["seq"],
                                              tie_word_embeddings=shape.get("tie_embeddings", True), **common)
            self.model = transformers.LlamaForCausalLM(config)
        if recompute:
            self.model.gradient_checkpointing_enable()

    @property
    def blocks(self):
        return self.model.transformer.h if hasattr(self.model, "transformer") else self.model.model.layers

    def forward(self, tokens):
        return self.model(input_ids=tokens, labels=tokens).loss


MODELS = {"plain": PlainModel, "chunked": ChunkedModel, "transformers": TransformersModel}
