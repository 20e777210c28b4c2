#!/usr/bin/env python3
"""Makes tests/golden/torch: checkpoints of DeepSpeed and Megatron, and what they hold.

    python3 make_torch_folders.py OUT deepspeed   # torch 2.11, deepspeed 0.19, transformers 4.57
    python3 make_torch_folders.py OUT megatron    # torch 2.11 alone

deepspeed  A one-block GPT-2 that DeepSpeed (ZeRO-1, CPU) trained for three steps, saved, and that its own
           ds_to_universal converted. expected.safetensors: weights and moments as DeepSpeed's own
           functions give them, <parameter>/<state>.
megatron   No training. Weights and moments by a rule, put together as Megatron's layers hold them (q, k and
           v by query group; gate over up; rows of the vocabulary up to a multiple), with args, a random
           state and, but for llama, an optimizer beside them. expected.safetensors: the same by Sluice's
           names; where there is an optimizer [weight, exp_avg, exp_avg_sq] of each, stacked.
           gpt2_tp2      two tensor-parallel ranks, fp32
           gpt2_pipeline two of these by two stages of two virtual ones each, bf16; groups in the order
                         in which a stage meets them
           llama         one rank, bf16
           llama_uneven  three stages of 1, 3 and 1 layers, fp16 with a loss scale; Adam's count by group
           llama_dist    torch_dist of two layers on two ranks, written by torch.distributed.checkpoint
"""
import argparse
import io
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


def save(folder, name, args, **more):
    where = folder / f"mp_rank_{name}"
    where.mkdir(parents=True)
    state = {"args": argparse.Namespace(**args), "checkpoint_version": 3.0, "iteration": 12, **more,
             "opt_param_scheduler": {"num_steps": 96}, "rng_state": rng_state()}
    torch.save(state, where / "model_optim_rng.pt")


COMMON = {"params_dtype": torch.float32, "consumed_train_samples": 96, "seed": 7, "vocab_size": None, "init_method_std": 0.02}
STATES = ("", "/exp_avg", "/exp_avg_sq")


def states_of(shapes, half=None):
    """Weights (that a half type does not hold exactly) and moments by name and state."""
    found = {}
    for name, shape in shapes.items():
        found[name] = ruled(name, *shape) + (ruled(name + "~", *shape) / 4096 if half else 0)
        found[name + "/exp_avg"] = ruled(name + "/exp_avg", *shape) / 64
        found[name + "/exp_avg_sq"] = ruled(name + "/exp_avg_sq", *shape).abs() / 512
    return found


def save_expected(folder, w):
    stacked = {name: torch.stack([w[name + state] for state in STATES]) for name in w if "/" not in name}
    save_file(stacked, str(folder / "expected.safetensors"))


def packed(tensors):
    """The same as views of one storage, as Megatron's buffers hold them; and small files."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    at, views = 0, []
    for t in tensors:
        views.append(flat[at:at + t.numel()].view(t.shape))
        at += t.numel()
    return views


def optimizer_of(chunks, half, decay_first=True, step_in_group=False, scaler=None, updates=11):
    """Of [(name, weight, exp_avg, exp_avg_sq)] by chunk: groups with and without decay, each in the model's order."""
    params = [entry for chunk in chunks for entry in chunk]
    decays = [entry for entry in params if entry[1].dim() > 1 and not entry[0].endswith(".bias")]
    others = [entry for entry in params if entry[1].dim() == 1 or entry[0].endswith(".bias")]
    state, groups, masters, at = {}, [], [], 0
    steps = torch.full((len(params),), float(updates))
    for mult, members in ((1.0, decays), (0.0, others)) if decay_first else ((0.0, others), (1.0, decays)):
        first = packed([entry[2] for entry in members])
        second = packed([entry[3] for entry in members])
        for i in range(len(members)):
            state[at + i] = {"exp_avg": first[i], "exp_avg_sq": second[i]}
            if not step_in_group:
                state[at + i]["step"] = steps[at + i]
        group = {"wd_mult": mult, "lr_mult": 1.0, "is_decoupled_lr": False, "lr": 2.5e-4, "weight_decay": 0.1 * mult,
                 "betas": (0.9, 0.95), "eps": 1e-8, "params": list(range(at, at + len(members)))}
        if step_in_group:
            group["step"] = updates
        groups.append(group)
        copies = packed([entry[1] for entry in members])
        for copy in copies[::3]:  # which makes torch pickle them with attributes
            copy.tensor_model_parallel, copy.partition_dim = True, 0
        masters.append(copies)
        at += len(members)
    inner = {"state": state, "param_groups": groups}
    if half is None:
        return inner
    return {"optimizer": inner, "fp32_from_fp16_params": masters} | ({"grad_scaler": scaler} if scaler else {})


def model_of(chunk, half):
    """The weights of a chunk, of the model's type."""
    weights = packed([entry[1].to(half) if half else entry[1] for entry in chunk])
    return {entry[0]: weight for entry, weight in zip(chunk, weights)}


def nested(tensors):
    """The first generation's dictionaries in dictionaries around flat names."""
    language = {}
    for name, t in tensors.items():
        if name.startswith("embedding."):
            _, table, what = name.split(".")
            language.setdefault("embedding", {}).setdefault(table, {})[what] = t
        elif name.startswith("encoder."):
            language.setdefault("encoder", {})[name.removeprefix("encoder.")] = t
    head = tensors.get("word_embeddings_for_head.weight")
    return {"language_model": language} | ({} if head is None else {"word_embeddings_for_head": {"weight": head}})


def gpt2_shapes(hidden, ffn, vocab, seq, layers):
    names = {"wte.weight": (vocab, hidden), "wpe.weight": (seq, hidden), "ln_f.weight": (hidden,), "ln_f.bias": (hidden,)}
    for i in range(layers):
        for name, shape in (("ln_1.weight", (hidden,)), ("ln_1.bias", (hidden,)), ("attn.c_attn.weight", (3 * hidden, hidden)),
                            ("attn.c_attn.bias", (3 * hidden,)), ("attn.c_proj.weight", (hidden, hidden)), ("attn.c_proj.bias", (hidden,)),
                            ("ln_2.weight", (hidden,)), ("ln_2.bias", (hidden,)), ("mlp.c_fc.weight", (ffn, hidden)),
                            ("mlp.c_fc.bias", (ffn,)), ("mlp.c_proj.weight", (hidden, ffn)), ("mlp.c_proj.bias", (hidden,))):
            names[f"h.{i}.{name}"] = shape
    return names


def gpt2_chunk(w, heads, padding, part, layers, first, last):
    """[(name, weight, exp_avg, exp_avg_sq)] of one rank's chunk, in its module's order; layers numbered from 0."""
    def theirs(state):
        p = lambda name: w[name + state]
        mine = lambda t, dim=0: t.chunk(2, dim)[part].clone()
        table = mine(torch.cat([p("wte.weight"), torch.full((padding, p("wte.weight").shape[1]), 99.0)]))
        found = {}
        if first:
            found["embedding.word_embeddings.weight"] = table
            found["embedding.position_embeddings.weight"] = p("wpe.weight")
        for local, i in enumerate(layers):
            h, ours = f"encoder.layers.{local}.", f"h.{i}."
            fused = {what: grouped(*p(f"{ours}attn.c_attn.{what}").chunk(3), heads) for what in ("weight", "bias")}
            for what in ("weight", "bias"):
                found[f"{h}input_norm.{what}"] = p(f"{ours}ln_1.{what}")
            for what in ("weight", "bias"):
                found[f"{h}self_attention.query_key_value.{what}"] = mine(fused[what])
            found[f"{h}self_attention.dense.weight"] = mine(p(f"{ours}attn.c_proj.weight"), 1)
            found[f"{h}self_attention.dense.bias"] = p(f"{ours}attn.c_proj.bias")
            for what in ("weight", "bias"):
                found[f"{h}post_attention_norm.{what}"] = p(f"{ours}ln_2.{what}")
            for what in ("weight", "bias"):
                found[f"{h}mlp.dense_h_to_4h.{what}"] = mine(p(f"{ours}mlp.c_fc.{what}"))
            found[f"{h}mlp.dense_4h_to_h.weight"] = mine(p(f"{ours}mlp.c_proj.weight"), 1)
            found[f"{h}mlp.dense_4h_to_h.bias"] = p(f"{ours}mlp.c_proj.bias")
        if last:
            found["encoder.final_norm.weight"], found["encoder.final_norm.bias"] = p("ln_f.weight"), p("ln_f.bias")
        if last and not first:
            found["word_embeddings_for_head.weight"] = table
        return found
    of = [theirs(state) for state in STATES]
    return [(name, *(states[name] for states in of)) for name in of[0]]


GPT2 = dict(COMMON, position_embedding_type="learned_absolute", normalization="LayerNorm", swiglu=False, add_bias_linear=True,
            bias_gelu_fusion=True, group_query_attention=False, tensor_model_parallel_size=2)


def gpt2(out):
    """The first generation's names, nested; vocabulary 11 filled up to 16, two ranks."""
    hidden, heads, ffn, vocab, seq, layers = 8, 4, 12, 11, 6, 2
    w = states_of(gpt2_shapes(hidden, ffn, vocab, seq, layers))
    folder = out / "gpt2_tp2"
    for part in range(2):
        chunk = gpt2_chunk(w, heads, 5, part, range(layers), True, True)
        save(folder, f"{part:02d}", dict(GPT2, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, ffn_hidden_size=ffn,
                                         max_position_embeddings=seq, padded_vocab_size=16),
             model=nested(model_of(chunk, None)), optimizer=optimizer_of([chunk], None, updates=12))
    save_expected(folder, w)


def gpt2_pipeline(out):
    """Chunk c of stage p holds layer 2 c + p; a stage meets a matrix first only where the embedding is."""
    hidden, heads, ffn, vocab, seq, layers, half = 6, 2, 10, 21, 5, 4, torch.bfloat16
    w = states_of(gpt2_shapes(hidden, ffn, vocab, seq, layers), half)
    folder = out / "gpt2_pipeline"
    for part in range(2):
        for stage in range(2):
            chunks = [gpt2_chunk(w, heads, 11, part, [2 * c + stage], c == 0 and stage == 0, c == 1 and stage == 1) for c in range(2)]
            args = dict(GPT2, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, ffn_hidden_size=ffn, rank=part + 4 * stage,
                        world_size=8, max_position_embeddings=seq, padded_vocab_size=32, pipeline_model_parallel_size=2,
                        virtual_pipeline_model_parallel_size=2, params_dtype=half)
            save(folder / "iter_0000012", f"{part:02d}_{stage:03d}", args, optimizer=optimizer_of(chunks, half, decay_first=stage == 0),
                 **{f"model{c}": nested(model_of(chunk, half)) for c, chunk in enumerate(chunks)})
    (folder / "latest_checkpointed_iteration.txt").write_text("12")
    save_expected(folder, w)


def llama_shapes(hidden, q, kv, ffn, vocab, layers):
    names = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        for name, shape in (("input_layernorm.weight", (hidden,)), ("self_attn.q_proj.weight", (q, hidden)),
                            ("self_attn.k_proj.weight", (kv, hidden)), ("self_attn.v_proj.weight", (kv, hidden)),
                            ("self_attn.o_proj.weight", (hidden, q)), ("post_attention_layernorm.weight", (hidden,)),
                            ("mlp.gate_proj.weight", (ffn, hidden)), ("mlp.up_proj.weight", (ffn, hidden)), ("mlp.down_proj.weight", (hidden, ffn))):
            names[f"model.layers.{i}.{name}"] = shape
    return names


LLAMA = dict(COMMON, group_query_attention=True, position_embedding_type="rope", rotary_base=5000, normalization="RMSNorm", swiglu=True,
             add_bias_linear=False, norm_epsilon=1e-6)


def llama_uneven(out):
    """Megatron-Core's flat names without Transformer Engine; the last stage holds a copy of the table for its head."""
    hidden, heads, groups, size, ffn, vocab, half = 4, 2, 1, 2, 6, 11, torch.float16
    stages = [range(0, 1), range(1, 4), range(4, 5)]
    w = states_of(llama_shapes(hidden, heads * size, groups * size, ffn, vocab, 5), half)
    def theirs(layers, first, last, state):
        p = lambda name: w[name + state]
        table = torch.cat([p("model.embed_tokens.weight"), torch.full((5, hidden), 99.0)])
        found = {"embedding.word_embeddings.weight": table} if first else {}
        for local, i in enumerate(layers):
            h, q = f"decoder.layers.{local}.", lambda name, i=i: p(f"model.layers.{i}.{name}.weight")
            found[h + "input_layernorm.weight"] = q("input_layernorm")
            found[h + "self_attention.linear_proj.weight"] = q("self_attn.o_proj")
            found[h + "self_attention.linear_qkv.weight"] = grouped(q("self_attn.q_proj"), q("self_attn.k_proj"), q("self_attn.v_proj"), groups)
            found[h + "pre_mlp_layernorm.weight"] = q("post_attention_layernorm")
            found[h + "mlp.linear_fc1.weight"] = torch.cat([q("mlp.gate_proj"), q("mlp.up_proj")])
            found[h + "mlp.linear_fc2.weight"] = q("mlp.down_proj")
        if last:
            found |= {"decoder.final_layernorm.weight": p("model.norm.weight"), "output_layer.weight": table}
        return found
    folder = out / "llama_uneven"
    for stage, layers in enumerate(stages):
        of = [theirs(layers, stage == 0, stage == 2, state) for state in STATES]
        chunk = [(name, *(states[name] for states in of)) for name in of[0]]
        scaler = {"scale": torch.tensor([1024.0]), "growth_tracker": 5, "hysteresis_tracker": 2}
        save(folder, f"00_{stage:03d}", dict(LLAMA, num_layers=5, hidden_size=hidden, num_attention_heads=heads, num_query_groups=groups,
                                             kv_channels=size, ffn_hidden_size=ffn, max_position_embeddings=8, padded_vocab_size=16,
                                             pipeline_model_parallel_size=3, virtual_pipeline_model_parallel_size=None, params_dtype=half,
                                             rank=2 * stage, tensor_model_parallel_size=1),
             model=model_of(chunk, half), optimizer=optimizer_of([chunk], half, step_in_group=True, scaler=scaler))
    save_expected(folder, w)


def llama(out):
    """Megatron-Core's flat names with Transformer Engine's norms; bf16, grouped queries, an untied head."""
    hidden, heads, groups, size, ffn, vocab, layers = 8, 4, 2, 2, 12, 13, 1
    q, kv = heads * size, groups * size
    names = llama_shapes(hidden, q, kv, ffn, vocab, layers) | {"lm_head.weight": (vocab, hidden)}
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
    save(folder / "iter_0000012", "00",
         dict(LLAMA, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_query_groups=groups, kv_channels=size,
              ffn_hidden_size=ffn, max_position_embeddings=64, padded_vocab_size=16, untie_embeddings_and_output_weights=True), model=model)
    (folder / "latest_checkpointed_iteration.txt").write_text("12")
    save_file({name: t.float() for name, t in w.items()}, str(folder / "expected.safetensors"))


def llama_dist(out):
    """Blocks stacked by layer, a piece for each and for halves of some of its rows or columns, in two files."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

    hidden, heads, groups, size, ffn, vocab, layers, half = 4, 4, 2, 2, 6, 11, 2, torch.bfloat16
    w = states_of(llama_shapes(hidden, heads * size, groups * size, ffn, vocab, layers), half)
    pieces = []  # (key, global shape, offset, tensor)

    def whole(key, t):
        pieces.append((key, t.shape, (0,) * t.dim(), t))

    def stacked(key, each, parts=1, dim=0):
        for layer, t in enumerate(each):
            for part, piece in enumerate(t.chunk(parts, dim)):
                at = [layer] + [0] * t.dim()
                at[1 + dim] = part * piece.shape[dim]
                pieces.append((key, (layers, *t.shape), tuple(at), piece.unsqueeze(0)))

    for prefix, state, kind in (("", "", half), ("optimizer.state.fp32_param.", "", None), ("optimizer.state.exp_avg.", "/exp_avg", None),
                                ("optimizer.state.exp_avg_sq.", "/exp_avg_sq", None)):
        typed = lambda t: t.to(kind) if kind else t
        p = lambda name: typed(w[name + state])
        each = lambda name: [p(f"model.layers.{i}.{name}.weight") for i in range(layers)]
        h = prefix + "decoder.layers."
        whole(prefix + "embedding.word_embeddings.weight", torch.cat([p("model.embed_tokens.weight"), typed(torch.full((5, hidden), 99.0))]))
        whole(prefix + "decoder.final_layernorm.weight", p("model.norm.weight"))
        qkv = zip(each("self_attn.q_proj"), each("self_attn.k_proj"), each("self_attn.v_proj"))
        stacked(h + "self_attention.linear_qkv.weight", [grouped(*three, groups) for three in qkv])
        stacked(h + "self_attention.linear_qkv.layer_norm_weight", each("input_layernorm"))
        stacked(h + "self_attention.linear_proj.weight", each("self_attn.o_proj"), 2, 1)
        stacked(h + "mlp.linear_fc1.layer_norm_weight", each("post_attention_layernorm"))
        both = zip(each("mlp.gate_proj"), each("mlp.up_proj"))
        stacked(h + "mlp.linear_fc1.weight", [torch.cat(two) for two in both], 2)
        stacked(h + "mlp.linear_fc2.weight", each("mlp.down_proj"))

    class Planner(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            items = []
            for key, shape, at, t in pieces:
                data = TensorWriteData(ChunkStorageMetadata(torch.Size(at), t.shape), TensorProperties.create_from_tensor(t), torch.Size(shape))
                items.append(WriteItem(MetadataIndex(key, at), WriteItemType.SHARD, tensor_data=data))
            items.append(WriteItem(MetadataIndex("rng_state/shard_0_1"), WriteItemType.BYTE_IO))
            self.plan = SavePlan(items)
            return self.plan

        def resolve_data(self, item):
            if item.type == WriteItemType.BYTE_IO:
                return io.BytesIO(b"as it is")
            return next(t.contiguous() for key, _, at, t in pieces if (key, at) == (item.index.fqn, tuple(item.index.offset)))

    folder = out / "llama_dist" / "iter_0000012"
    dcp.save({}, storage_writer=dcp.FileSystemWriter(folder, thread_count=2), planner=Planner(flatten_state_dict=False), no_dist=True)
    args = dict(LLAMA, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_query_groups=groups, kv_channels=size,
                ffn_hidden_size=ffn, max_position_embeddings=8, padded_vocab_size=16, params_dtype=half, tensor_model_parallel_size=2)
    groups_of = [{"wd_mult": mult, "lr": 2.5e-4} for mult in (1.0, 0.0)]
    torch.save({"args": argparse.Namespace(**args), "checkpoint_version": 3.0, "iteration": 12,
                "optimizer": {"optimizer": {"state": {"common_step": torch.tensor(11.0)}, "param_groups": groups_of}}}, folder / "common.pt")
    (folder.parent / "latest_checkpointed_iteration.txt").write_text("12")
    save_expected(folder.parent, w)


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if sys.argv[2] == "deepspeed":
        deepspeed(where)
    else:
        gpt2(where)
        gpt2_pipeline(where)
        llama(where)
        llama_uneven(where)
        llama_dist(where)
