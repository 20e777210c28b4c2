#!/usr/bin/env python3
"""The program on the null GPU: families, dtypes, stages, tiers, orders and recomputation run to exit 0; what GPUs refuse is
refused in words.

Usage: runs_test.py [--all] [--sluice PROGRAM] [--libraries FOLDER] [--jobs N] [--only TEXT]

Without --all any two values of different settings meet in a run, with it any three.  Exit codes: 0; 1 where a run is not as
it should be; 77 where there is no null GPU.
"""
import json
import sys

import training
from card_checks import CARD_CHECKS
from covering import grid_checks
from small_runs import MESHES, MODELS, PIPELINE_MESHES, SEQUENCE, STAGES, STEPS, TENSOR, problems
from work_checks import WORK_CHECKS, with_and_without_graphs

TIERS = ("device", "host", "nvme")
SETTINGS = {
    "family": tuple(MODELS),
    "train.dtype": ("fp32", "bf16", "fp16"),
    "zero.stage": (0, 1, 2, 3),
    "offload.optimizer": TIERS,
    "offload.parameters": TIERS,
    "offload.gradients": TIERS,
    "offload.activations": TIERS,
    "train.accumulation_order": ("micro", "layer"),
    "recompute.mode": ("none", "selective", "full"),
    "micro_batches": (1, 3),
    "mesh": tuple(mesh for mesh in MESHES if mesh not in PIPELINE_MESHES),
    "optimizer.type": ("adamw", "lion", "sgd"),
    "offload.states_dtype": ("fp32", "bf16"),
    "train.attention": ("flash", "cudnn"),
}
PIPELINES = {
    "family": tuple(MODELS),
    "parallel.schedule": ("gpipe", "1f1b", "interleaved", "zero_bubble"),
    "mesh": tuple(PIPELINE_MESHES),
    "train.dtype": ("fp32", "bf16"),
    "zero.stage": (0, 1, 2, 3),
    "offload.optimizer": TIERS,
    "offload.parameters": TIERS,
    "offload.gradients": TIERS,
    "offload.activations": TIERS,
    "recompute.mode": ("none", "selective", "full"),
    "micro_batches": (2, 5),
}


def is_valid(c):
    """The rules of configs/offload_rules.cpp."""
    mesh = MESHES[c["mesh"]][2]
    off_device = [c["offload.parameters"] != "device", c["offload.gradients"] != "device"]
    return not (
        (off_device[0] and c["zero.stage"] != 3) or (off_device[1] and c["zero.stage"] < 2)
        or (any(off_device) and c["offload.optimizer"] == "device")
        or (c.get("train.attention") == "cudnn" and (c["train.dtype"] == "fp32" or c["family"] in ("gpt2 with dropout", "mistral")))
        or ("parallel.sequence" in mesh and c["offload.gradients"] == "nvme")  # replicas are added up in memory
        or (c.get("train.accumulation_order") == "layer" and c["micro_batches"] == 1))


def settings_of(combination, swap):
    (ranks, data, mesh), micro_batches = MESHES[combination["mesh"]], combination["micro_batches"]
    settings = {key: value for key, value in combination.items() if "." in key}
    if micro_batches == 1:
        settings.pop("train.accumulation_order", None)
    if settings.get("parallel.schedule") == "interleaved":
        settings["parallel.virtual_stages"] = 2
    settings |= mesh | {"train.steps": STEPS, "launch.nproc": ranks, "train.global_batch": 2 * data * micro_batches}
    if "nvme" in settings.values():
        settings["offload.nvme_path"] = [str(swap)]
    return settings


def check_combination(place, name, combination):
    settings = settings_of(combination, place.folder / name / "swap")
    model, ranks = MODELS[combination["family"]], settings["launch.nproc"]
    if "parallel.pipeline" in settings:  # pieces of unequal length; gradients of tied embeddings are added up in memory
        model = model | {"layers": 7, "tie_embeddings": settings["offload.gradients"] != "nvme"}
    return problems(place.train(name, model, settings, gpus=ranks), ranks)


# ---- other commands and settings of the same program ----

def resumed(place, name, model, settings, ranks=1):
    """A run that evaluates, saves, goes on, samples; then eval and generate of its checkpoint."""
    settings = settings | {"train.steps": 2, "train.eval_steps": 1, "train.sample_tokens": 4, "data.split": [1, 1],
                           "checkpoint.at_end": True, "train.dtype": "bf16", "launch.nproc": ranks}
    found = problems(place.train(name, model, settings, gpus=ranks), ranks, 2)
    if found:
        return found
    config = place.config(name, model, settings | {"train.steps": 4})
    run = place.folder / name / "run"
    for arguments in (["train", config, "--resume", "auto"], ["eval", config, "--checkpoint", run],
                      ["generate", "--checkpoint", run, "--prompt", "abc", "--max-tokens", "4"]):
        answer = place.command(name, arguments, gpus=ranks)
        if answer.code != 0:
            found.append(f"{arguments[0]}: exit code {answer.code}:\n{training.tail(answer.text)}")
        found += [f"{arguments[0]}: fault: {what}" for r in answer.reports for what in r["faults"]]
        found += [f"{arguments[0]}: work on the default stream" for r in answer.reports if any(r["default_stream"].values())]
    return found


def check_resume(place):
    return resumed(place, "resume", MODELS["llama"], {"zero.stage": 3})


def check_resume_tensor(place):
    return resumed(place, "resume-tensor", MODELS["llama"], TENSOR | {"zero.stage": 1}, 2)


def check_resume_pipeline(place):
    return resumed(place, "resume-pipeline", MODELS["llama"], STAGES | {"zero.stage": 2, "train.global_batch": 4}, 2)


def check_odd_sizes(place):
    """A vocabulary that no rank divides, an odd number of layers, key heads that two ranks share, documents in rows; tensors that fill no
    block of the allocator, small ones and ones above 10 MiB, leave the card."""
    found = []
    for name, model, mesh, ranks in (
            ("odd-gpt2", MODELS["gpt2"] | {"vocab": 50257, "layers": 7}, SEQUENCE, 2),
            ("odd-stages", MODELS["gpt2"] | {"vocab": 50257, "layers": 7}, STAGES | {"train.global_batch": 12}, 4),
            ("odd-kept", MODELS["gpt2"] | {"hidden": 256, "seq": 1001}, {"offload.activations": "host", "train.micro_batch": 6}, 1),
            ("odd-inputs", MODELS["llama"] | {"hidden": 72, "seq": 61}, {"offload.activations": "nvme", "recompute.mode": "full",
             "offload.nvme_path": [str(place.folder / "odd-inputs" / "swap")]}, 1),
            ("odd-mistral", MODELS["mistral"] | {"vocab": 50257, "layers": 7, "kv_heads": 1}, TENSOR, 4),
            ("odd-qwen2", MODELS["qwen2"] | {"vocab": 1003, "tie_embeddings": False}, SEQUENCE | {"parallel.tensor": 4}, 4)):
        settings = mesh | {"train.dtype": "bf16", "train.steps": STEPS, "launch.nproc": ranks, "zero.stage": 3, "data.document_mask": True}
        found += [f"{name}: {what}" for what in problems(place.train(name, model, settings, gpus=ranks), ranks)]
    return found


def check_product_attention(place):
    """What fused attention does not take: dropout and odd heads, on odd lengths, with windows, documents and slices of heads."""
    found = []
    dropout, packed = {"dropout": 0.1}, {"data.document_mask": True}
    for name, model, settings, ranks in (
            ("gpt2-heads-of-20", MODELS["gpt2"] | dropout | {"hidden": 80, "layers": 2, "seq": 1003}, {}, 1),
            ("gpt2-heads-of-5", MODELS["gpt2"] | {"hidden": 20, "seq": 63}, {"recompute.mode": "full"}, 1),
            ("gpt2-head-of-272", MODELS["gpt2"] | {"hidden": 272, "heads": 1, "layers": 1}, {"train.dtype": "fp32"}, 1),
            ("llama-heads-of-36", MODELS["llama"] | {"head_dim": 36, "layers": 7, "seq": 61}, packed | {"train.dtype": "fp16"}, 1),
            ("llama-dropout", MODELS["llama"] | dropout, packed | TENSOR | {"recompute.mode": "selective"}, 2),
            ("mistral-dropout", MODELS["mistral"] | dropout | {"kv_heads": 1, "seq": 700}, SEQUENCE | {"train.dtype": "fp32"}, 2),
            ("qwen2-zero-bubble", MODELS["qwen2"] | dropout | {"head_dim": 20},
             STAGES | {"parallel.schedule": "zero_bubble", "train.global_batch": 4}, 2),
            ("gpt2-autograd", MODELS["gpt2"] | dropout | {"explicit_units": False}, {"recompute.mode": "full"}, 1)):
        settings = {"train.dtype": "bf16", "train.steps": STEPS, "launch.nproc": ranks, "zero.stage": 2} | settings
        answer = place.train(name, model, settings, gpus=ranks)
        found += [f"{name}: {what}" for what in problems(answer, ranks)]
        unaligned = sum(p["count"] for r in answer.reports for p in r["products"] if not p["aligned"] and p["batch"] > 1)
        found += [f"{name}: {unaligned} batched products without 16-byte leading dimensions"] if unaligned else []
        own = any("score_gradients" in kernel for r in answer.reports for kernel in [*r["kernels"], *r["graph_kernels"]])
        if own != model.get("explicit_units", True):
            found.append(f"{name}: the kernel of attention's backward {'ran' if own else 'did not run'}")
    return found


# cudaDataType_t of products: 8-bit operands, and an fp32 result, as gradients of weights have.
E4M3, FP32 = 28, 0


def check_eight_bits(place):
    """train.matmul: fp8: all products of linear layers have 8-bit operands, for odd lengths, split backwards and every mesh."""
    found, fp8 = [], {"train.dtype": "bf16", "train.steps": STEPS, "train.matmul": "fp8"}
    for name, model, settings, ranks, copies in (
            ("gpt2", MODELS["gpt2"] | {"seq": 1000, "layers": 7, "vocab": 50257}, {"train.micro_batch": 1}, 1, 1),
            ("llama-recomputed", MODELS["llama"], {"recompute.mode": "full", "train.cuda_graphs": "never"}, 1, 1),
            ("gpt2-dropout", MODELS["gpt2 with dropout"], {"recompute.mode": "selective", "train.global_batch": 6}, 1, 3),
            ("frozen", MODELS["llama"] | {"layers": 7}, {"train.freeze": ["model.layers.0.*"]}, 1, 6 / 7),
            ("qwen2-stage-3", MODELS["qwen2"], {"zero.stage": 3, "train.global_batch": 4}, 2, 2),
            ("gpt2-tensor", MODELS["gpt2"], TENSOR, 2, 2),
            ("llama-sequence", MODELS["llama"] | {"ffn": 192}, SEQUENCE | {"zero.stage": 3}, 2, 2),
            ("mistral-split", MODELS["mistral"], STAGES | {"parallel.schedule": "zero_bubble", "train.global_batch": 4}, 2, 2)):
        answer = place.train(f"fp8-{name}", model, fp8 | {"launch.nproc": ranks} | settings, gpus=ranks)
        found += [f"{name}: {what}" for what in problems(answer, ranks)]
        eight = [p for report in answer.reports for p in report["products"] if p["types"][0] == E4M3]
        wide = sum(p["count"] for p in eight if p["types"][1] == FP32)
        expected = 4 * model["layers"] * STEPS * copies  # of a layer: q k v, attention's output, up (and gate), down
        forward = sum(p["count"] for p in eight) - wide
        if wide != expected or forward < 2 * wide:
            found.append(f"{name}: {wide} 8-bit products of weights' gradients and {forward} others, {expected} are the layers'")
        if not any("measured_" in kernel for r in answer.reports for kernel in [*r["kernels"], *r["graph_kernels"]]):
            found.append(f"{name}: no activation left its largest magnitudes")
    wrong, _ = with_and_without_graphs(place, "fp8-graphs", MODELS["llama"], {"train.matmul": "fp8"}, 1)
    return found + [f"graphs: {what}" for what in wrong] + old_card_problems(place, fp8)


def old_card_problems(place, fp8):
    answer = place.train("fp8-old-card", MODELS["llama"], fp8, capability=86)
    launched = any(report["work"]["launches"] for report in answer.reports)
    if answer.code == 2 and "8.9" in answer.text and "8.6" in answer.text and not launched:
        return []
    return [f"a card of capability 8.6: exit code {answer.code}:\n{training.tail(answer.text)}"]


def check_documents(place):
    """Rows of several documents: varlen attention."""
    settings = {"data.document_mask": True, "train.dtype": "bf16", "train.steps": STEPS}
    return problems(place.train("documents", MODELS["llama"], settings), 1)


def check_frozen(place):
    settings = {"train.freeze": ["wte", "h.0.*"], "zero.stage": 2, "train.steps": STEPS}
    return problems(place.train("frozen", MODELS["gpt2"], settings), 1)


def check_speculation(place):
    settings = {"offload.optimizer": "nvme", "offload.speculate": "auto", "offload.image": True, "zero.stage": 2,
                "offload.chunk_bytes": 16384, "offload.chunks": 2, "zero.bucket_bytes": 16384, "train.clip": 0,
                "offload.nvme_path": [str(place.folder / "speculation" / "swap")], "train.steps": 8}  # from the fifth step on
    return problems(place.train("speculation", MODELS["gpt2"], settings), 1, 8)


def check_device_fraction(place):
    settings = {"offload.optimizer": "host", "offload.device_fraction": 0.5, "offload.states_dtype": "bf16", "train.steps": STEPS}
    found = problems(place.train("fraction", MODELS["qwen2"], settings), 1)
    # Nothing is left for the host, so a micro-batch is one long graph, into which no wait may fall.
    whole = {"offload.optimizer": "host", "offload.device_fraction": 1, "train.steps": STEPS}
    model = MODELS["llama"] | {"layers": 10, "hidden": 4096, "heads": 2, "head_dim": 32, "ffn": 64, "vocab": 288}
    return found + problems(place.train("fraction-whole", model, whole), 1)


def check_gradients_dtype(place):
    """Gradients that the card rounds before their copy: of several micro-batches, and beside fp32 ones of replicas."""
    rounds = {"train.dtype": "bf16", "zero.stage": 3, "offload.optimizer": "host", "offload.gradients_dtype": "bf16", "train.steps": STEPS}
    layers = {"train.accumulation_order": "layer", "train.global_batch": 6, "offload.gradients": "nvme",
              "offload.nvme_path": [str(place.folder / "gradients-layer" / "swap")]}
    found = problems(place.train("gradients-layer", MODELS["qwen2"], rounds | layers), 1)
    replicas = SEQUENCE | {"launch.nproc": 2, "offload.gradients": "host", "offload.parameters": "host"}
    return found + problems(place.train("gradients-replicas", MODELS["llama"], rounds | replicas, gpus=2), 2)


def check_doctor(place):
    (place.folder / "doctor").mkdir(exist_ok=True)
    answer = place.command("doctor", ["doctor", "--out", place.folder / "doctor" / "rates.json"])
    if answer.code != 0:
        return [f"exit code {answer.code}:\n{training.tail(answer.text)}"]
    rates = json.loads((place.folder / "doctor" / "rates.json").read_text())
    found = [f"attention by {name} was not measured: {rates['not_measured'].get(f'gpu.attention_flops.{name}')}"
             for name in ("flash", "cudnn") if not rates["gpu"]["attention_flops"][name]]
    return found + (["work on the default stream"] if any(any(r["default_stream"].values()) for r in answer.reports) else [])


def check_full_card(place):
    """Too little memory: exit code 3 and advice, before a step or, where the driver lacks it for a kernel, in one."""
    full = place.train("full", MODELS["gpt2"], {"train.micro_batch": 64}, card_bytes=48 << 20)
    found = []
    dry = place.command("dry", ["train", place.config("dry", MODELS["gpt2"], {"train.micro_batch": 64}), "--dry-run"], card_bytes=48 << 20)
    for answer in (full, dry):  # the launcher refuses: no rank takes a context
        if answer.code != 3 or "GPU memory: a step needs" not in answer.text or "suggestions: " not in answer.text:
            found.append(f"exit code {answer.code}, 3 and the launcher's words were expected:\n{training.tail(answer.text)}")
    if (full.folder / "plan.json").exists():
        found.append("plan.json was written for a plan that does not fit")
    # Launches in a row, of our kernels and of libtorch's, whose message is its own.
    ways = {"lower train.micro_batch": 0, "the device ran out of memory in a step": 0}
    for launch in range(140, 152):
        answer = place.train(f"full-{launch}", MODELS["llama"], {"train.dtype": "bf16", "train.steps": STEPS},
                             variables={"NULL_GPU_FULL_AT": str(launch)})
        said = [words for words in ways if words in answer.text]
        if answer.code != 3 or not said:
            found.append(f"launch {launch}: exit code {answer.code}, 3 and one of {list(ways)} were expected:\n{training.tail(answer.text)}")
        for words in said:
            ways[words] += 1
    return found + [f"no launch ended with '{words}'" for words, count in ways.items() if not count]


def check_nccl_budget(place):
    """memory.device covers NCCL's buffers: 192 MiB of two ranks of a host."""
    found = []
    for budget, code, words in (("150MiB", 3, "NCCL buffers, estimate 192 MiB"), ("400MiB", 0, "")):
        answer = place.train(f"nccl-{budget}", MODELS["llama"], {"memory.device": budget, "launch.nproc": 2, "train.global_batch": 4}, gpus=2)
        if answer.code != code or words not in answer.text:
            found.append(f"memory.device {budget}: exit code {answer.code}, {code} and '{words}' were expected:\n{training.tail(answer.text)}")
    device = answer.plan["tiers"]["device"]
    if device.get("nccl_estimate") != 192 << 20 or device["peak"] > 100 << 20:
        found.append(f"the plan has {device}")
    # Context and NCCL's buffers together exceed this card, but neither alone does with the plan.
    config = place.config("nccl-dry", MODELS["llama"], {"launch.nproc": 2, "train.global_batch": 4})
    dry = place.command("nccl-dry", ["train", config, "--dry-run"], gpus=2, card_bytes=966367641 + (150 << 20))
    if dry.code != 0 or "and the driver's context with the libraries takes about" not in dry.text:
        found.append(f"dry run: exit code {dry.code}, 0 and a warning were expected:\n{training.tail(dry.text)}")
    return found


# Family, settings that GPUs refuse for the family, words of the message, and what is special about the machine.
REFUSALS = {
    "cudnn-fp32": ("llama", {"train.attention": "cudnn"}, "train.attention: cudnn: cuDNN's attention takes 16 bits"),
    "cudnn-window": ("mistral", {"train.attention": "cudnn", "train.dtype": "bf16"}, "takes no model.sliding_window"),
    "cudnn-dropout": ("gpt2 with dropout", {"train.attention": "cudnn", "train.dtype": "bf16"}, "takes no model.dropout"),
    "cudnn-deterministic": ("llama", {"train.attention": "cudnn", "train.dtype": "bf16", "train.deterministic": True},
                            "adds in any order, and train.deterministic is true"),
    "ranks": ("llama", {"launch.nproc": 3}, "3 ranks need as many GPUs, and 2 are visible"),
    "old-gpu": ("llama", {}, "2 GPUs are visible, and NVIDIA H100 80GB HBM3 (null) has compute capability 7.5, less than the 8.0", {"capability": 75}),
    "old-driver": ("llama", {}, "2 GPUs are visible, and the driver serves CUDA 12.4 and older, but libtorch here is made for CUDA 13.0",
                   {"variables": {"NULL_GPU_DRIVER": "12040"}}),
}


def check_refusal(place, name, refusal):
    family, settings, words, *machine = refusal
    return refusal_problems(place.train(f"refused-{name}", MODELS[family], settings, gpus=2, **dict(*machine)), words)


def refusal_problems(answer, words):
    found = [] if answer.code == 2 else [f"exit code {answer.code}, 2 was expected:\n{training.tail(answer.text)}"]
    if words not in answer.text:
        found.append(f"the message lacks '{words}':\n{training.tail(answer.text)}")
    if any(report["work"]["launches"] for report in answer.reports):
        found.append("a kernel was launched before the refusal")
    return found


def check_allocator_settings(place):
    """Settings of libtorch's allocator under which a plan or a recorded step would be wrong."""
    found = []
    for name, setting, words in (("split", "max_split_size_mb:128", "set to max_split_size_mb"),
                                 ("expandable", "expandable_segments:True", "set to expandable_segments:True"),
                                 ("backend", "backend:cudaMallocAsync", "set to backend:cudaMallocAsync")):
        answer = place.train(f"allocator-{name}", MODELS["llama"], {}, variables={"PYTORCH_CUDA_ALLOC_CONF": setting})
        found += [f"{name}: {what}" for what in refusal_problems(answer, words)]
    for graphs, code, words in (("auto", 2, "set train.cuda_graphs: never"), ("never", 0, "")):
        answer = place.train(f"allocator-no-cache-{graphs}", MODELS["llama"], {"train.cuda_graphs": graphs},
                             variables={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
        if answer.code != code or words not in answer.text:
            found.append(f"graphs {graphs}: exit code {answer.code}, {code} and '{words}' were expected:\n{training.tail(answer.text)}")
    return found


# What `plan` refuses on this machine's cards, without a profile: settings, the machine, exit code and words.
PLANS = {
    "small card": ({}, {"card_bytes": 1_000_000_000}, 3, "does not fit"),
    "card below the context": ({}, {"card_bytes": 500_000_000}, 3, "the card has no room for a step"),
    "fp8": ({"train.dtype": "bf16", "train.matmul": "fp8"}, {"capability": 86}, 2, "and this one has 8.6"),
}


def check_plan(place, name, settings, machine, code, words):
    config = place.config(f"plan-{name}", MODELS["llama"], settings)
    answer = place.command(f"plan-{name}", ["plan", config], **machine)
    found = [] if answer.code == code else [f"exit code {answer.code}, {code} was expected:\n{training.tail(answer.text)}"]
    return found if words in answer.text else [*found, f"the answer lacks '{words}':\n{training.tail(answer.text)}"]


COMMANDS = (check_resume, check_resume_tensor, check_resume_pipeline, check_odd_sizes, check_product_attention, check_eight_bits,
            check_documents, check_frozen, check_speculation, check_device_fraction, check_gradients_dtype, check_nccl_budget, check_full_card,
            *CARD_CHECKS, check_allocator_settings, *WORK_CHECKS)
LONG = (check_doctor,)  # measures the processors and a drive too

# What goes wrong on one of two ranks, words of the message, and the mesh.
FAILURES = {
    "error": ("engine.forward.2.0:rank=1:error", "rank 1 on ", STAGES),
    "killed": ("engine.forward.2.0:rank=1:kill", "killed by SIGKILL", STAGES),
    "hangs": ("engine.forward.2.0:rank=1:hang", "made no progress", STAGES),
    "message": ("comm.send@3:rank=1:error", "failpoint comm.send", STAGES),
    "gather": ("comm.all_gather@4:rank=0:error", "failpoint comm.all_gather", {"zero.stage": 3}),
    "reduction hangs": ("comm.reduce_scatter@4:rank=1:hang", "made no progress", {"zero.stage": 2}),
}


def check_failure(place, name, failure):
    """A rank that fails, dies or hangs ends the other one, within the test's time."""
    failpoints, words, mesh = failure
    settings = mesh | {"launch.nproc": 2, "launch.timeout": 6, "train.global_batch": 4, "train.steps": 50}
    answer = place.train(f"failed-{name}".replace(' ', '-'), MODELS["llama"], settings, gpus=2, failpoints=failpoints)
    found = [] if answer.code == 5 else [f"exit code {answer.code}, 5 was expected:\n{training.tail(answer.text)}"]
    return found if words in answer.text else [*found, f"the message lacks '{words}':\n{training.tail(answer.text)}"]


def named_checks(place, everything):
    """(name, function without arguments) of each check; the function returns what is wrong, and a note."""
    checks = [(f.__name__.removeprefix("check_"), lambda f=f: f(place)) for f in COMMANDS + (LONG if everything else ())]
    for name, refusal in REFUSALS.items():
        checks.append((f"refused {name}", lambda n=name, r=refusal: check_refusal(place, n, r)))
    for name, plan in PLANS.items():
        checks.append((f"plan {name}", lambda n=name, p=plan: check_plan(place, n, *p)))
    for name, failure in FAILURES.items():
        checks.append((f"failed {name}", lambda n=name, f=failure: check_failure(place, n, f)))
    checks += grid_checks({"grid": SETTINGS, "pipeline": PIPELINES}, is_valid, 3 if everything else 2,
                          lambda name, combination: check_combination(place, name, combination))
    return [(name, lambda c=check: (c(), "")) for name, check in checks]


if __name__ == "__main__":
    sys.exit(training.main(__doc__, "any three settings meet, not any two", named_checks))
