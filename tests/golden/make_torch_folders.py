#!/usr/bin/env python3
"""Makes tests/golden/torch: checkpoints of DeepSpeed and Megatron, and what they hold.

    python3 make_torch_folders.py OUT deepspeed   # torch 2.11, deepspeed 0.19, transformers 4.57
    python3 make_torch_folders.py OUT megatron    # torch 2.11 alone

deepspeed  A one-block GPT-2 that DeepSpeed (ZeRO-1, CPU) trained for three steps, saved, and that its own
           ds_to_universal converted. expected.safetensors: weights and moments as DeepSpeed's own
           functions give them, <parameter>/<state>.
megatron   gpt2_tp2 and llama: no training. Weights by a rule, put together as Megatron's layers hold
           them (q, k and v by query group; gate over up; rows of the vocabulary up to a multiple), on two
           tensor-parallel ranks and on one, with args, a random state and an optimizer beside them.
           expected.safetensors: the same weights by Sluice's names.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import torch
from safetensors.torch import save_file


def deepspeed(out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")
    import deepspeed as ds
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    from transformers import GPT2Config, GPT2LMHeadModel

    ds.init_distributed(dist_backend="gloo")
    torch.manual_seed(5)
    config = GPT2Config(vocab_size=13, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    settings = {"train_batch_size": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine, _, _, _ = ds.initialize(model=model, optimizer=optimizer, config=settings)
    for _ in range(3):
        ids = torch.randint(0, 13, (2, 8))
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    expected = {}
    for name, param in engine.module.named_parameters():
        expected[name + "/fp32"] = safe_get_full_fp32_param(param).clone()
        for state in ("exp_avg", "exp_avg_sq"):
            expected[f"{name}/{state}"] = safe_get_full_optimizer_state(param, state).clone()
    saved = out / "saved"
    engine.save_checkpoint(str(saved))
    folder = out / "deepspeed"
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", str(saved / "global_step3"),
                    "--output_folder", str(folder), "--inject_missing_state", "--num_extract_workers", "1",
                    "--num_merge_workers", "1"], check=True)
    shutil.rmtree(saved)
    save_file(expected, str(folder / "expected.safetensors"))


def ruled(name, *shape):
    """Element i: a fraction that fp32, bf16's rounding aside, holds exactly, and that differs by name."""
    count = 1
    for dim in shape:
        count *= dim
    salt = sum(name.encode()) % 251
    return (((torch.arange(count) * 37 + salt) % 509 - 254) / 256).float().reshape(shape)


def grouped(q, k, v, groups):
    """q, k and v rows, query group by query group."""
    parts = [part.reshape(groups, -1, *part.shape[1:]) for part in (q, k, v)]
    return torch.cat(parts, dim=1).reshape(-1, *q.shape[1:])


def rng_state():
    import numpy

    return [{"random_rng_state": (3, (1, 2, 3), None), "np_rng_state": numpy.random.RandomState(1).get_state()[:1],
             "torch_rng_state": torch.arange(8, dtype=torch.uint8)}]


def save(folder, part, model, args):
    where = folder / f"mp_rank_{part:02d}"
    where.mkdir(parents=True)
    state = {"args": argparse.Namespace(**args), "checkpoint_version": 3.0, "iteration": 12, "model": model,
             "optimizer": {"param_groups": [{"lr": 1e-4, "params": [0, 1]}]}, "opt_param_scheduler": {"num_steps": 96},
             "rng_state": rng_state()}
    torch.save(state, where / "model_optim_rng.pt")


COMMON = {"params_dtype": torch.float32, "consumed_train_samples": 96, "seed": 7, "vocab_size": None, "init_method_std": 0.02}


def gpt2(out):
    """The first generation's names, nested; vocabulary 11 filled up to 16, two ranks."""
    hidden, heads, ffn, vocab, seq, layers = 8, 4, 12, 11, 6, 2
    names = {"wte.weight": (vocab, hidden), "wpe.weight": (seq, hidden), "ln_f.weight": (hidden,), "ln_f.bias": (hidden,)}
    for i in range(layers):
        for name, shape in (("ln_1.weight", (hidden,)), ("ln_1.bias", (hidden,)), ("attn.c_attn.weight", (3 * hidden, hidden)),
                            ("attn.c_attn.bias", (3 * hidden,)), ("attn.c_proj.weight", (hidden, hidden)), ("attn.c_proj.bias", (hidden,)),
                            ("ln_2.weight", (hidden,)), ("ln_2.bias", (hidden,)), ("mlp.c_fc.weight", (ffn, hidden)),
                            ("mlp.c_fc.bias", (ffn,)), ("mlp.c_proj.weight", (hidden, ffn)), ("mlp.c_proj.bias", (hidden,))):
            names[f"h.{i}.{name}"] = shape
    w = {name: ruled(name, *shape) for name, shape in names.items()}
    folder = out / "gpt2_tp2"
    table = torch.cat([w["wte.weight"], torch.full((5, hidden), 99.0)])
    for part in range(2):
        mine = lambda t, dim=0, part=part: t.chunk(2, dim)[part].clone()
        layer = {}
        for i in range(layers):
            h, ours = f"layers.{i}.", f"h.{i}."
            for what in ("weight", "bias"):
                fused = grouped(*w[ours + "attn.c_attn." + what].chunk(3), heads)
                layer[f"{h}input_norm.{what}"] = w[f"{ours}ln_1.{what}"]
                layer[f"{h}self_attention.query_key_value.{what}"] = mine(fused)
                layer[f"{h}post_attention_norm.{what}"] = w[f"{ours}ln_2.{what}"]
                layer[f"{h}mlp.dense_h_to_4h.{what}"] = mine(w[f"{ours}mlp.c_fc.{what}"])
            layer[f"{h}self_attention.dense.weight"] = mine(w[f"{ours}attn.c_proj.weight"], 1)
            layer[f"{h}self_attention.dense.bias"] = w[f"{ours}attn.c_proj.bias"]
            layer[f"{h}mlp.dense_4h_to_h.weight"] = mine(w[f"{ours}mlp.c_proj.weight"], 1)
            layer[f"{h}mlp.dense_4h_to_h.bias"] = w[f"{ours}mlp.c_proj.bias"]
        layer["final_norm.weight"], layer["final_norm.bias"] = w["ln_f.weight"], w["ln_f.bias"]
        model = {"language_model": {"embedding": {"word_embeddings": {"weight": mine(table)},
                                                  "position_embeddings": {"weight": w["wpe.weight"]}}, "encoder": layer}}
        save(folder, part, model, dict(COMMON, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, ffn_hidden_size=ffn,
                                       max_position_embeddings=seq, padded_vocab_size=16, tensor_model_parallel_size=2,
                                       position_embedding_type="learned_absolute", normalization="LayerNorm", swiglu=False,
                                       add_bias_linear=True, bias_gelu_fusion=True, group_query_attention=False))
    save_file(w, str(folder / "expected.safetensors"))


def llama(out):
    """Megatron-Core's flat names with Transformer Engine's norms; bf16, grouped queries, an untied head."""
    hidden, heads, groups, size, ffn, vocab, layers = 8, 4, 2, 2, 12, 13, 1
    q, kv = heads * size, groups * size
    names = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        for name, shape in (("input_layernorm.weight", (hidden,)), ("self_attn.q_proj.weight", (q, hidden)),
                            ("self_attn.k_proj.weight", (kv, hidden)), ("self_attn.v_proj.weight", (kv, hidden)),
                            ("self_attn.o_proj.weight", (hidden, q)), ("post_attention_layernorm.weight", (hidden,)),
                            ("mlp.gate_proj.weight", (ffn, hidden)), ("mlp.up_proj.weight", (ffn, hidden)), ("mlp.down_proj.weight", (hidden, ffn))):
            names[f"model.layers.{i}.{name}"] = shape
    w = {name: ruled(name, *shape).bfloat16() for name, shape in names.items()}
    pad = torch.full((3, hidden), 99.0).bfloat16()
    model = {"embedding.word_embeddings.weight": torch.cat([w["model.embed_tokens.weight"], pad]),
             "decoder.final_layernorm.weight": w["model.norm.weight"], "decoder.final_layernorm._extra_state": None,
             "output_layer.weight": torch.cat([w["lm_head.weight"], pad])}
    for i in range(layers):
        h, ours = f"decoder.layers.{i}.", f"model.layers.{i}."
        p = lambda name, ours=ours: w[ours + name + ".weight"]
        model[h + "self_attention.linear_qkv.layer_norm_weight"] = p("input_layernorm")
        model[h + "self_attention.linear_qkv.weight"] = grouped(p("self_attn.q_proj"), p("self_attn.k_proj"), p("self_attn.v_proj"), groups)
        model[h + "self_attention.linear_proj.weight"] = torch.nn.Parameter(p("self_attn.o_proj"))
        model[h + "mlp.linear_fc1.layer_norm_weight"] = p("post_attention_layernorm")
        model[h + "mlp.linear_fc1.weight"] = torch.cat([p("mlp.gate_proj"), p("mlp.up_proj")])
        # Stored the other way round: strides say so.
        model[h + "mlp.linear_fc2.weight"] = p("mlp.down_proj").t().contiguous().t()
    folder = out / "llama"
    save(folder / "iter_0000012", 0, model,
         dict(COMMON, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_query_groups=groups, group_query_attention=True,
              kv_channels=size, ffn_hidden_size=ffn, max_position_embeddings=64, padded_vocab_size=16, position_embedding_type="rope",
              rotary_base=5000, normalization="RMSNorm", swiglu=True, add_bias_linear=False, norm_epsilon=1e-6,
              untie_embeddings_and_output_weights=True))
    (folder / "latest_checkpointed_iteration.txt").write_text("12")
    save_file({name: t.float() for name, t in w.items()}, str(folder / "expected.safetensors"))


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if sys.argv[2] == "deepspeed":
        deepspeed(where)
    else:
        gpt2(where)
        llama(where)
