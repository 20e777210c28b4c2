#!/usr/bin/env python3
"""`sluice checkpoint import` of the shards that DeepSpeed itself saves on two ranks (Gloo, CPU).

Usage: deepspeed_shards_test.py SLUICE.  Ends with 77 (skipped) where deepspeed, torch or safetensors is not
installed.  Each case trains a tiny llama-shaped module for three steps, saves, and imports. Every element of
the fp32 weights and of both moments must have the bits that DeepSpeed's own functions give.

deepspeed_shards_test.py --keep OUT  writes tests/golden/torch/deepspeed_zero2 and deepspeed_zero3.
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")
try:
    import deepspeed
    import safetensors.torch
    import torch
    from deepspeed.utils import zero_to_fp32
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

RANKS = 2
HIDDEN, FFN, VOCAB = 6, 10, 13
SHAPES = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
for at, shape in {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN),
                  "self_attn.v_proj": (HIDDEN, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
                  "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN),
                  "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,)}.items():
    SHAPES[f"model.layers.0.{at}.weight"] = shape
MODEL = ["model.type=llama", "model.layers=1", f"model.hidden={HIDDEN}", "model.heads=1", "model.kv_heads=1",
         f"model.ffn={FFN}", "model.seq=8", f"model.vocab={VOCAB}"]
STATES = {"master": None, "moment1": "exp_avg", "moment2": "exp_avg_sq"}
CASES = {
    "zero1": {"zero_optimization": {"stage": 1}},
    "zero2_bf16": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    "zero2_round_robin": {"zero_optimization": {"stage": 2, "round_robin_gradients": True}},
    "zero2_bf16_aligned": {"zero_optimization": {"stage": 2, "parameter_alignment": True}, "bf16": {"enabled": True}},
    "zero1_bf16_fp32_sums": {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True},
                             "data_types": {"grad_accum_dtype": "fp32"}},
    "zero3": {"zero_optimization": {"stage": 3}},
    "zero3_groups_bf16": {"zero_optimization": {"stage": 3, "sub_group_size": 100}, "bf16": {"enabled": True}},
}
if tuple(int(number) for number in deepspeed.__version__.split("+")[0].split(".")[:3]) < (0, 19, 7):
    del CASES["zero2_bf16_aligned"]


class Node(torch.nn.Module):
    """Adds up the elements of its parameters, each times a number that depends on the batch."""

    def forward(self, x):
        total = x.sum() * 0
        for name, param in self.named_parameters(recurse=False):
            factors = torch.cos(torch.arange(param.numel(), dtype=torch.float32) * (len(name) + 1) + x.float().sum())
            total = total + (param.flatten().float() ** 2 * factors).sum() + (param.flatten().float() * factors).sum()
        for child in self.children():
            total = total + child(x)
        return total


def module(tied):
    root = Node()
    for name, shape in list(SHAPES.items()) + ([] if tied else [("lm_head.weight", (VOCAB, HIDDEN))]):
        node, path = root, name.split(".")
        for part in path[:-1]:
            if part not in dict(node.named_children()):
                node.add_module(part, Node())
            node = getattr(node, part)
        node.register_parameter(path[-1], torch.nn.Parameter(torch.randn(shape)))
    if tied:
        root.add_module("lm_head", Node())
        root.lm_head.register_parameter("weight", root.model.embed_tokens.weight)
    return root


def train(case, tied, out):
    """One rank: three steps, the checkpoint, and on rank 0 what it holds."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    rank = torch.distributed.get_rank()
    torch.manual_seed(5)
    model = module(tied)
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    settings = {"train_batch_size": 2 * RANKS, "train_micro_batch_size_per_gpu": 2,
                "zero_allow_untested_optimizer": True, **CASES[case]}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=settings)
    for step in range(3):
        torch.manual_seed(100 * step + rank)
        engine.backward(engine(torch.randn(2, 3)))
        engine.step()
    if engine.zero_optimization_stage() < 3 and hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        # DeepSpeed links the states after the first group's first step: those of later groups do not exist yet.
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    expected = {}
    for name, param in engine.module.named_parameters():
        expected[f"master/{name}"] = safe_get_full_fp32_param(param).clone()
        for kind, state in STATES.items():
            if state:
                expected[f"{kind}/{name}"] = safe_get_full_optimizer_state(param, state).clone()
    engine.save_checkpoint(str(out))
    if rank == 0:
        safetensors.torch.save_file(expected, str(out / "expected.safetensors"))


def folder_of(root, case, tied):
    return root / (case + ("-tied" if tied else ""))


def train_all(root):
    # No kernel is compiled.
    deepspeed.ops.__compatible_ops__.update(dict.fromkeys(deepspeed.ops.__compatible_ops__, False))
    deepspeed.init_distributed(dist_backend="gloo")
    for case in CASES:
        for tied in (False, True):
            train(case, tied, folder_of(root, case, tied))


def train_ranks(root):
    for case in CASES:
        for tied in (False, True):
            folder_of(root, case, tied).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                           LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), OMP_NUM_THREADS="1")
        with open(root / f"rank-{rank}.log", "w") as log:
            arguments = [sys.executable, "-B", __file__, "--train", str(root)]
            ranks.append(subprocess.Popen(arguments, env=environment, stdout=log, stderr=log))
    for rank, process in enumerate(ranks):
        code = process.wait()
        assert code == 0, f"rank {rank}:\n" + (root / f"rank-{rank}.log").read_text()[-4000:]


def imported(sluice, source, out, tied):
    settings = [f"--set={setting}" for setting in MODEL + [f"model.tie_embeddings={'true' if tied else 'false'}"]]
    subprocess.run([sluice, "checkpoint", "import", str(source), "-o", str(out), *settings], check=True)
    step = out / "step-00000003"
    assert json.loads((step / "manifest.json").read_text())["step"] == 3
    return safetensors.torch.load_file(str(step / "rank-00000.safetensors"))


def by_script(folder, stage):
    """The same by the functions of DeepSpeed's zero_to_fp32, given moments in place of weights as well."""
    files = [torch.load(file, weights_only=False)["optimizer_state_dict"]
             for file in zero_to_fp32.get_optim_files(str(folder))]
    models = zero_to_fp32.parse_model_states(zero_to_fp32.get_model_state_files(str(folder)))
    merge = getattr(zero_to_fp32, f"_get_fp32_state_dict_from_zero{3 if stage == 3 else 2}_checkpoint")
    paddings = [files[0]["param_alignment_paddings"]] if "param_alignment_paddings" in files[0] else []
    found = {}
    for kind, state in STATES.items():
        flat = [file["fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"] for file in files]
        if state:
            states = [file["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["state"] for file in files]
            flat = [[states[r][g][state][:len(group)] for g, group in enumerate(groups)] for r, groups in enumerate(flat)]
        merged = zero_to_fp32.to_torch_tensor(merge(RANKS, flat, models, False, *paddings))
        found |= {f"{kind}/{name}": values.float() for name, values in merged.items() if name in SHAPES or
                  name == "lm_head.weight" and not models[0].shared_params}
    return found


def compare(case, found, expected):
    assert len(found) == len(expected), f"{case}: {len(found)} ranges of {len(expected)}"
    for name, values in expected.items():
        ours = next(tensor for key, tensor in found.items() if key.split("@")[0] == name)
        same = ours.reshape(-1).view(torch.int32).equal(values.reshape(-1).view(torch.int32))
        assert same, f"{case}: {name}: {ours} is not {values}"
    print(f"{case}: {len(found)} ranges, every bit")


def main(sluice):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        train_ranks(root)
        for case in CASES:
            for tied in (False, True):
                out = folder_of(root, case, tied)
                found = imported(sluice, out, out / "ours", tied)
                settings = CASES[case]["zero_optimization"]
                if hasattr(zero_to_fp32, "to_torch_tensor"):  # older versions take other arguments
                    compare(out.name, found, by_script(out / "global_step3", settings["stage"]))
                if not settings.get("round_robin_gradients"):  # whose order DeepSpeed's mapping ignores
                    compare(out.name, found, safetensors.torch.load_file(str(out / "expected.safetensors")))


def keep(out):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        train_ranks(root)
        for name, folder in {"deepspeed_zero2": "zero2_bf16-tied", "deepspeed_zero3": "zero3_groups_bf16"}.items():
            for item in ("latest", "expected.safetensors"):
                (out / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(root / folder / item, out / name / item)
            shutil.copytree(root / folder / "global_step3", out / name / "global_step3")


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        train_all(pathlib.Path(sys.argv[2]))
    elif sys.argv[1] == "--keep":
        keep(pathlib.Path(sys.argv[2]))
    else:
        main(sys.argv[1])
