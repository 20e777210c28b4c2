"""Writes the golden numbers of this folder: what Hugging Face transformers computes for small models.

    python tests/golden/make_golden.py                # every file, about half a minute
    python tests/golden/make_golden.py llama mistral  # only these

It needs torch, transformers (4.x) and numpy; the versions used are in each file and in README.md.
The tests that read the files need none of them: weights, inputs and tokens follow from integer
rules (RULE below, repeated in each file), so a file holds results only.

Each model runs twice from the same fp32 weights: once in fp32, eager attention, as Hugging Face
computes it, and once entirely in fp64.  Keys ending in `_fp64` are of the second run; the distance
between the two is the rounding level that a test's tolerance must exceed.
"""

import contextlib
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from lift_fp64 import all_fp64, lift_module

HERE = pathlib.Path(__file__).resolve().parent

RULE = {
    "hash": "hash(k, i): u = (i*2654435761 + k*40503 + 12345) mod 2^32; u ^= u >> 15; "
    "u = (u*2246822519) mod 2^32; u ^= u >> 13.  Unsigned integers; i is the element's index, row-major, in "
    "the tensor as Hugging Face stores it (the Conv1D weights of gpt2 are [in, out]).",
    "value": "value(k, i, scale) = ((hash(k, i) >> 8) / 2^24 - 0.5) * 2 * scale, in double, without fused "
    "multiply-add, rounded to float32 at the end.",
    "parameters": "k = the position in `params` from 0.  kind matrix: value with scale 0.05; kind bias: value "
    "with scale 0.02; kind norm: 1 + value with scale 0.1, the 1 added in double before rounding.",
    "tokens": "tokens[b][s] = (((b*7919 + s*104729 + 17) * 2654435761 mod 2^32) >> 7) mod vocab, for s in "
    "0..seq.  The input is tokens[:, :seq], the target tokens[:, 1:], the loss the mean cross entropy "
    "over all batch*seq positions.",
    "steps": "AdamW, lr 1e-2, betas 0.9 and 0.95, eps 1e-8, decoupled weight decay 0.1 on kind matrix only: "
    "p *= 1 - lr*decay; m and v updated; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps), t from 1.  "
    "Before it every gradient is multiplied by min(1, 1.0/(norm + 1e-6)), norm being the global L2 norm.  "
    "`steps` has the loss and that norm before each update; `loss_after_steps` is the loss after the last.  "
    "`steps_eps_1e-5` and `loss_after_steps_eps_1e-5` are the same with eps 1e-5.",
    "norms": "A *_head is the first elements of the fp32 tensor, row-major.  Every L2 norm is summed in double from the "
    "run's own elements.  grad_error = ||grad_fp32 - grad_fp64|| / ||grad_fp64||.",
}

MATRIX_SCALE, BIAS_SCALE, NORM_SCALE = 0.05, 0.02, 0.1
STEPS = 5
# Adam moves an element by lr * g/(|g| + eps) in its first step.  With eps 1e-8 an element whose true gradient is
# about that small moves by an amount that rounding decides; with 1e-5 the run is well conditioned in fp32.
EPS = {"steps": 1e-8, "steps_eps_1e-5": 1e-5}


def hash_values(k, shape, scale):
    """The rule `value` as a float64 array that is not yet rounded to float32."""
    mask = np.uint64(0xFFFFFFFF)
    i = np.arange(math.prod(shape), dtype=np.uint64)
    u = (i * np.uint64(2654435761) + np.uint64(k * 40503 + 12345)) & mask
    u ^= u >> np.uint64(15)
    u = (u * np.uint64(2246822519)) & mask
    u ^= u >> np.uint64(13)
    return ((((u >> np.uint64(8)).astype(np.float64) / 2**24) - 0.5) * 2 * scale).reshape(shape)


def tokens(batch, length, vocab):
    b = np.arange(batch, dtype=np.uint64)[:, None]
    s = np.arange(length, dtype=np.uint64)[None, :]
    u = ((b * 7919 + s * 104729 + 17) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    return torch.from_numpy(((u >> np.uint64(7)) % np.uint64(vocab)).astype(np.int64))


def kind_of(name, tensor):
    if name.endswith("bias"):
        return "bias"
    if tensor.dim() == 1:
        return "norm"
    return "matrix"


def init(module):
    """Fills the parameters by the rule.  Tied parameters appear once, as in named_parameters()."""
    for k, (name, p) in enumerate(module.named_parameters()):
        kind = kind_of(name, p)
        if kind == "norm":
            values = 1.0 + hash_values(k, p.shape, NORM_SCALE)
        else:
            values = hash_values(k, p.shape, MATRIX_SCALE if kind == "matrix" else BIAS_SCALE)
        with torch.no_grad():
            p.copy_(torch.from_numpy(values.astype(np.float32)))


def in_precision(module, wide):
    """`module`, initialised, in fp32 or fp64, and the context to run it in."""
    init(module)
    if not wide:
        return module, contextlib.nullcontext()
    module = module.double()
    for child in module.modules():
        lift_module(child)
    return module, all_fp64()


def norm(tensor):
    return torch.linalg.vector_norm(tensor.detach().double()).item()


def head(tensor, count):
    return [digits(v, 9) for v in tensor.detach().flatten()[:count].tolist()]


def digits(value, count):
    return float(f"{value:.{count}g}")


def relative_error(got, exact):
    return digits(norm(got.double() - exact) / norm(exact), 3)


def global_norm(module):
    return math.sqrt(sum(norm(p.grad) ** 2 for p in module.parameters()))


def both(key, narrow, wide, count=12):
    return {key: digits(narrow, count), key + "_fp64": digits(wide, 15)}


def param_rows(narrow, wide, head_count):
    """REQUIRES: both hold their initial weights, and the gradients at them."""
    rows = []
    exact = dict(wide.named_parameters())
    for name, p in narrow.named_parameters():
        rows.append(
            {
                "name": name,
                "shape": list(p.shape),
                "kind": kind_of(name, p),
                "init_norm": digits(norm(p), 12),
                "init_head": head(p, 4),
                **both("grad_norm", norm(p.grad), norm(exact[name].grad)),
                "grad_error": relative_error(p.grad, exact[name].grad),
                "grad_head": head(p.grad, head_count),
            }
        )
    return rows


# ---- whole models ----


def loss_of(model, ids):
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def backward(model, ids):
    model.zero_grad()
    loss = loss_of(model, ids)
    loss.backward()
    return loss.item()


def adamw_steps(model, ids, eps):
    """From the initial weights: (losses, norms) before each of STEPS updates, and the loss after the last."""
    init(model)
    matrices = [p for n, p in model.named_parameters() if kind_of(n, p) == "matrix"]
    others = [p for n, p in model.named_parameters() if kind_of(n, p) != "matrix"]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=eps,
        foreach=False,
    )
    losses, norms = [], []
    for _ in range(STEPS):
        losses.append(backward(model, ids))
        norms.append(global_norm(model))
        for p in model.parameters():
            p.grad.mul_(min(1.0, 1.0 / (norms[-1] + 1e-6)))
        optimizer.step()
    with torch.no_grad():
        return losses, norms, loss_of(model, ids).item()


def step_rows(key, narrow, wide):
    rows = [
        {**both("loss", narrow[0][t], wide[0][t], 9), **both("grad_norm", narrow[1][t], wide[1][t])}
        for t in range(STEPS)
    ]
    return {key: rows, **both("loss_after_" + key, narrow[2], wide[2], 9)}


def check_masking(model, ids, window):
    """Position t must not see tokens after t, nor, with a window, those more than layers*(window-1) before."""
    model.eval()
    with torch.no_grad():
        base = model(input_ids=ids[:, :-1]).logits
        last, first = ids[:, :-1].clone(), ids[:, :-1].clone()
        last[:, -1] = (last[:, -1] + 1) % model.config.vocab_size
        first[:, 0] = (first[:, 0] + 1) % model.config.vocab_size
        assert torch.equal(model(input_ids=last).logits[:, :-1], base[:, :-1])
        reach = model.config.num_hidden_layers * (window - 1) if window else ids.shape[1]
        changed = (model(input_ids=first).logits != base).any(-1).any(0)
        assert changed[: reach + 1].all() and not changed[reach + 1 :].any()
    model.train()


def whole_model(config, hf_config, hf_class):
    ids = tokens(config["batch"], config["seq"] + 1, config["vocab"])
    runs = []
    for wide in (False, True):
        model = hf_class(hf_config)
        assert model.config._attn_implementation == "eager"
        model, context = in_precision(model.train(), wide)
        with context:
            if not wide:
                check_masking(model, ids, config.get("sliding_window"))
            loss = backward(model, ids)
            total = global_norm(model)
            grads = {n: p.grad.clone() for n, p in model.named_parameters()}
            steps = {key: adamw_steps(model, ids, eps) for key, eps in EPS.items()}
        init(model)
        for n, p in model.named_parameters():
            p.grad = grads[n]
        runs.append((model, loss, total, steps))
    narrow, wide = runs
    results = {
        "tokens_head": ids[0, :8].tolist(),
        **both("loss", narrow[1], wide[1], 9),
        **both("grad_norm", narrow[2], wide[2]),
    }
    for key in EPS:
        results |= step_rows(key, narrow[3][key], wide[3][key])
    return results | {"params": param_rows(narrow[0], wide[0], 4)}


def gpt2(layers, hidden, heads, vocab, seq, batch, positions):
    config = dict(type="gpt2", layers=layers, hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, vocab=vocab)
    config |= dict(seq=seq, batch=batch, positions=positions, norm_eps=1e-5, activation="gelu_new", tie_embeddings=True)
    hf = transformers.GPT2Config(
        n_layer=layers,
        n_embd=hidden,
        n_head=heads,
        vocab_size=vocab,
        n_positions=positions,
        activation_function="gelu_new",
        layer_norm_epsilon=1e-5,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return config, whole_model(config, hf, transformers.GPT2LMHeadModel)


def llama_family(kind, norm_eps, tie, rope_scaling=None, sliding_window=None):
    layers, hidden, heads, kv_heads, ffn, vocab, positions = 2, 48, 4, 2, 96, 257, 512
    config = dict(type=kind, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, vocab=vocab)
    config |= dict(seq=24, batch=2, positions=positions, norm_eps=norm_eps, activation="silu", tie_embeddings=tie)
    config |= dict(rope_theta=10000.0, rope_scaling=rope_scaling, qkv_bias=kind == "qwen2")
    options = dict(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=ffn,
        vocab_size=vocab,
        max_position_embeddings=positions,
        rms_norm_eps=norm_eps,
        rope_theta=10000.0,
        tie_word_embeddings=tie,
        attention_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    if rope_scaling:
        options["rope_scaling"] = rope_scaling
    if kind == "mistral":
        config["sliding_window"] = options["sliding_window"] = sliding_window
        config["sliding_window_means"] = "query t sees the keys t - sliding_window + 1 .. t"
    classes = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }
    hf_config, hf_class = classes[kind]
    return config, whole_model(config, hf_config(**options), hf_class)


# ---- one block ----


def gpt2_block():
    config = dict(type="gpt2_block", hidden=48, heads=4, ffn=192, seq=24, batch=2, norm_eps=1e-5, activation="gelu_new")
    config |= dict(causal=True, x="value(1000, i, 0.5), shape [batch, seq, hidden]", loss="sum(y * w)")
    config |= dict(w="value(1001, i, 1.0), the shape of y")
    hf = transformers.GPT2Config(
        n_embd=48,
        n_head=4,
        n_positions=32,
        activation_function="gelu_new",
        layer_norm_epsilon=1e-5,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",
    )
    shape = (2, 24, 48)
    inputs = [hash_values(1000, shape, 0.5), hash_values(1001, shape, 1.0)]
    runs = []
    for wide in (False, True):
        block, context = in_precision(GPT2Block(hf, layer_idx=0), wide)
        dtype = torch.float64 if wide else torch.float32
        x, w = (torch.from_numpy(v.astype(np.float32)).to(dtype) for v in inputs)
        x.requires_grad_()
        with context:
            y = block(x)[0]
            loss = (y * w).sum()
            loss.backward()
            moved = x.detach().clone()
            moved[:, -1] += 1
            assert torch.equal(block(moved)[0][:, :-1], y[:, :-1])  # causal
        runs.append((block, x, y, loss.item()))
    narrow, wide = runs
    return config, {
        **both("loss", narrow[3], wide[3], 9),
        "x_norm": digits(norm(narrow[1]), 12),
        "x_head": head(narrow[1], 8),
        **both("y_norm", norm(narrow[2]), norm(wide[2])),
        "y_error": relative_error(narrow[2], wide[2]),
        "y_head": head(narrow[2], 8),
        **both("x_grad_norm", norm(narrow[1].grad), norm(wide[1].grad)),
        "x_grad_error": relative_error(narrow[1].grad, wide[1].grad),
        "x_grad_head": head(narrow[1].grad, 8),
        "params": param_rows(narrow[0], wide[0], 8),
    }


LLAMA3_ROPE = {  # with 6 frequencies, one is kept, one blended and four divided by the factor
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

FILES = {
    "gpt2_block": gpt2_block,
    "gpt2_small": lambda: gpt2(layers=3, hidden=48, heads=4, vocab=257, seq=24, batch=2, positions=32),
    "gpt2_odd": lambda: gpt2(layers=7, hidden=40, heads=5, vocab=509, seq=33, batch=3, positions=33),
    "llama": lambda: llama_family("llama", 1e-5, tie=False),
    "llama3_rope": lambda: llama_family("llama", 1e-5, tie=False, rope_scaling=LLAMA3_ROPE),
    "mistral": lambda: llama_family("mistral", 1e-5, tie=False, sliding_window=8),
    "qwen2": lambda: llama_family("qwen2", 1e-6, tie=True),
}


def to_text(document):
    """JSON with one parameter or step a line, so that a difference between versions can be read."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join("    " + json.dumps(row) for row in value)
            lines.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        elif key == "rule":
            rows = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {json.dumps(key)}: {{\n{rows}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names = sys.argv[1:] or list(FILES)
    unknown = [n for n in names if n not in FILES]
    if unknown:
        sys.exit(f"no golden file {unknown[0]!r}; there are: {', '.join(FILES)}")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    for name in names:
        config, results = FILES[name]()
        document = {"config": config, "rule": RULE, "versions": versions, **results}
        (HERE / f"{name}.json").write_text(to_text(document))
        worst = max(p["grad_error"] for p in results["params"])
        print(f"{name:12} loss {results['loss']:.9g} fp64 {results['loss_fp64']:.12g} worst grad error {worst:.1e}")


if __name__ == "__main__":
    main()
