#!/usr/bin/env python3
"""The program on the null GPU: families, dtypes, stages, tiers, orders and recomputation run to exit 0; what GPUs refuse is
refused in words.

Usage: runs_test.py [--all] [--sluice PROGRAM] [--libraries FOLDER] [--jobs N] [--only TEXT]

Without --all any two values of different settings meet in a run, with it any three.  Exit codes: 0; 1 where a run is not as
it should be; 77 where there is no null GPU.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import re
import sys
import tempfile

import channels
import training
from covering import covering

MODELS = {
    "gpt2": {"type": "gpt2", "layers": 3, "hidden": 64, "heads": 4, "vocab": 320, "seq": 64},
    "gpt2 with dropout": {"type": "gpt2", "layers": 3, "hidden": 64, "heads": 4, "vocab": 320, "seq": 64, "dropout": 0.1},
    "llama": {"type": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64},
    "mistral": {"type": "mistral", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64,
                "sliding_window": 16},
    "qwen2": {"type": "qwen2", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64},
}
TIERS = ("device", "host", "nvme")
# Ranks, data-parallel ranks, and the keys of the mesh.
TENSOR = {"parallel.tensor": 2}
SEQUENCE = TENSOR | {"parallel.sequence": True}
STAGES = {"parallel.pipeline": 2}
PIPELINE_MESHES = {"two stages": (2, 1, STAGES), "four stages": (4, 1, {"parallel.pipeline": 4}),
                   "two stages, two data ranks": (4, 2, STAGES), "two stages, sequence 2": (4, 1, STAGES | SEQUENCE)}
MESHES = PIPELINE_MESHES | {"one rank": (1, 1, {}), "two data ranks": (2, 2, {}), "tensor 2": (2, 1, TENSOR), "sequence 2": (2, 1, SEQUENCE),
          "tensor 2, two data ranks": (4, 2, TENSOR), "sequence 2, two data ranks": (4, 2, SEQUENCE)}
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
STEPS = 3  # the second has the first one's deferred updates, the third is like it


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


def problems(answer, ranks, steps=STEPS):
    """What is wrong with a training's answer; nothing where it is right."""
    if answer.code != 0:
        return [f"exit code {answer.code}:\n{training.tail(answer.text)}"]
    found = []
    working = [r for r in answer.reports if r["work"]["launches"] > 0]
    if len(working) != ranks:
        found.append(f"{len(working)} processes launched kernels, there are {ranks} ranks")
    for report in working:
        found += [f"fault: {what}" for what in report["faults"]]
        found += [f"{count} {kind} on the default stream" for kind, count in report["default_stream"].items() if count]
    if len(answer.steps) != steps:
        found.append(f"{len(answer.steps)} steps in metrics.jsonl, {steps} were asked for")
    found += [f"step {s['step']}: loss {s['loss']}" for s in answer.steps if not math.isfinite(s["loss"])]
    if ranks > 1 and not all(r["work"]["messages"] for r in working):
        found.append("a rank sent no NCCL message")
    return found + channels.problems(working)


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
    """A vocabulary that no rank divides, an odd number of layers, key heads that two ranks share, documents in rows."""
    found = []
    for name, model, mesh, ranks in (
            ("odd-gpt2", MODELS["gpt2"] | {"vocab": 50257, "layers": 7}, SEQUENCE, 2),
            ("odd-stages", MODELS["gpt2"] | {"vocab": 50257, "layers": 7}, STAGES | {"train.global_batch": 12}, 4),
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


def check_documents(place):
    """Rows of several documents: varlen attention."""
    # Flash attention takes head sizes that are multiples of 8.
    settings = {"data.document_mask": True, "train.dtype": "bf16", "train.steps": STEPS}
    return problems(place.train("documents", MODELS["llama"], settings), 1)


def check_frozen(place):
    settings = {"train.freeze": ["wte", "h.0.*"], "zero.stage": 2, "train.steps": STEPS}
    return problems(place.train("frozen", MODELS["gpt2"], settings), 1)


def check_speculation(place):
    settings = {"offload.optimizer": "nvme", "offload.speculate": "auto", "offload.image": True, "zero.stage": 2,
                "offload.nvme_path": [str(place.folder / "speculation" / "swap")], "train.steps": STEPS}
    return problems(place.train("speculation", MODELS["gpt2"], settings), 1)


def check_device_fraction(place):
    settings = {"offload.optimizer": "host", "offload.device_fraction": 0.5, "offload.states_dtype": "bf16", "train.steps": STEPS}
    return problems(place.train("fraction", MODELS["qwen2"], settings), 1)


def check_doctor(place):
    (place.folder / "doctor").mkdir(exist_ok=True)
    answer = place.command("doctor", ["doctor", "--out", place.folder / "doctor" / "rates.json"])
    if answer.code != 0:
        return [f"exit code {answer.code}:\n{training.tail(answer.text)}"]
    return ["work on the default stream"] if any(any(r["default_stream"].values()) for r in answer.reports) else []


def work_of(report):
    """Everything that a card did, launched by the host or by graphs."""
    kernels = collections.Counter(report["kernels"]) + collections.Counter(report["graph_kernels"])
    copies = {way: {key: count for key, count in sums.items() if key != "behind_copies"} for way, sums in report["copies"].items()}
    return {"kernels": dict(sorted(kernels.items())), "products": sorted(map(str, report["products"])), "copies": copies,
            "memsets": report["work"]["memsets"], "messages": report["messages"]}


GRAPH_STEPS = 8  # with an evaluation behind the fourth
LAUNCHED = 7  # steps: the first runs eagerly, the second and the fifth are recorded and launched
SCALARS_BYTES = 16  # of a step's numbers, which recorded kernels read (kernels/cuda/step_scalars.hpp)


def with_and_without_graphs(place, name, model, settings, ranks):
    """(what is wrong, answer with graphs): the card does the same as without, also behind an evaluation; with graphs the step's
    numbers are copied too."""
    settings = {"train.dtype": "bf16", "zero.stage": 2, "train.steps": GRAPH_STEPS, "train.eval_every": 4, "train.eval_steps": 1,
                "data.split": [1, 1], "launch.nproc": ranks} | settings
    runs = {choice: place.train(f"{name}-{choice}", model, settings | {"train.cuda_graphs": choice}, gpus=ranks)
            for choice in ("auto", "never")}
    found = [f"{choice}: {what}" for choice, answer in runs.items() for what in problems(answer, ranks, GRAPH_STEPS)]
    graphs, plain = (of_ranks(answer) for answer in runs.values())
    found += ["a graph was launched with train.cuda_graphs: never"] * any(r["graph_launches"] for r in plain)
    works = [sorted((work_of(report) for report in reports), key=str) for reports in (graphs, plain)]
    for work in works[1]:
        to_device = work["copies"]["host_to_device"]
        to_device["copies"], to_device["bytes"] = to_device["copies"] + GRAPH_STEPS, to_device["bytes"] + SCALARS_BYTES * GRAPH_STEPS
    found += [f"{kind} with graphs {work[kind]}, without {other[kind]}" for work, other in zip(*works) for kind in work
              if work[kind] != other[kind]]
    return found, runs["auto"]


def of_ranks(answer):
    return [report for report in answer.reports if report["work"]["launches"]]


def check_graphs(place):
    """With a loss factor that changes in every step."""
    return [f"{family}: {what}" for family in ("llama", "gpt2 with dropout") for what in graph_problems(place, family)]


def graph_problems(place, family):
    name = "graphs-" + family.replace(" ", "-")
    settings = {"train.dtype": "fp16", "train.global_batch": 4, "loss_scale.window": 1}
    found, answer = with_and_without_graphs(place, name, MODELS[family], settings, 1)
    if found:
        return found
    plan = place.command(f"{name}-plan", ["plan", place.folder / f"{name}-auto/config.yaml", "--profile", "h100-sxm"])
    planned = re.search(r"launched as (\d+) graphs", " ".join(plan.text.split()))
    if not planned:
        return [f"no word of graphs in the plan:\n{training.tail(plan.text)}"]
    launched = answer.reports[0]["graph_launches"]
    if launched != LAUNCHED * int(planned[1]):
        found.append(f"{launched} graphs were launched, {planned[1]} a step are planned")
    factors = [step["loss_scale"] for step in answer.steps]
    if len(set(factors)) != len(factors):
        found.append(f"the loss scales {factors} are to differ at every step")
    return found


def check_graphs_pipeline(place):
    """Each schedule, pieces of unequal length, full recomputation, data-parallel ranks."""
    found = []
    for schedule, family, more, ranks in (("1f1b", "gpt2 with dropout", {"recompute.mode": "full"}, 2), ("gpipe", "llama", {}, 4),
                                           ("interleaved", "llama", {"parallel.virtual_stages": 2}, 2),
                                           ("zero_bubble", "qwen2", {"train.dtype": "fp16", "loss_scale.window": 1}, 2)):
        settings = STAGES | more | {"parallel.schedule": schedule, "train.global_batch": 5 * ranks}
        wrong, answer = with_and_without_graphs(place, f"graphs-{schedule}", MODELS[family] | {"layers": 7}, settings, ranks)
        wrong += [f"a rank launched {r['graph_launches']} graphs in {LAUNCHED} steps" for r in of_ranks(answer)
                  if r["graph_launches"] == 0 or r["graph_launches"] % LAUNCHED]
        found += [f"{schedule}: {what}" for what in wrong]
    return found


def check_no_graphs(place):
    """Steps that do not repeat themselves."""
    found = []
    for name, model, settings in (("autograd", MODELS["gpt2 with dropout"] | {"explicit_units": False}, {}),
                                  ("documents", MODELS["llama"], {"data.document_mask": True})):
        answer = place.train(f"no-graphs-{name}", model, settings | {"train.dtype": "bf16", "train.steps": STEPS})
        found += problems(answer, 1)
        if answer.reports and answer.reports[0]["graph_launches"]:
            found.append(f"{name}: a graph was launched")
    return found


def slices_of(trace):
    """The measured slices by the name of their lane, in the file's order."""
    lanes = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name" and event["pid"] == 0}
    slices = collections.defaultdict(list)
    for event in trace:
        if event["ph"] == "X" and event["pid"] == 0:
            slices[lanes[event["tid"]]].append(event)
    return slices


def trace_problems(answer):
    """What is wrong with a trace: operations that take no time or overlap on their lane, timers without a time."""
    slices = slices_of(json.loads((answer.folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"])
    found = []
    for lane, events in slices.items():
        found += [f"{lane}: {e['name']} begins at {e['ts']}, takes {e['dur']}" for e in events if e["ts"] < 0 or e["dur"] < 0]
        found += [f"{lane}: {a['name']} is not over where {b['name']} begins" for a, b in zip(events, events[1:])
                  if a["ts"] + a["dur"] > b["ts"] + 1e-3]
    units = [e for e in slices["compute"] if e["name"].split()[0] in ("Forward", "LossHead", "Backward", "BackwardWeights")]
    found += [f"{e['name']} takes no time" for e in units if e["dur"] <= 0]
    if not units:
        found.append(f"no unit's operation in the lanes {list(slices)}")
    for step in answer.steps:
        found += [f"step {step['step']}: {name} takes no time" for name in ("forward", "backward", "optimizer")
                  if step["timers_ms"][name] <= 0]
    return found


def check_traced(place):
    """A trace's times are the device's, each operation's in a graph too, and tracing makes nobody wait: the host waits as
    often as without, streams wait for no more events, and the card does the same."""
    found = []
    for name, ranks, settings in (("graphs", 1, {"zero.stage": 2}), ("stage 3", 2, {"zero.stage": 3, "offload.optimizer": "host"}),
                                  ("sequence", 2, SEQUENCE | {"zero.stage": 1}),
                                  ("stages", 2, STAGES | {"train.global_batch": 8, "zero.stage": 2})):
        settings = {"train.dtype": "bf16", "train.steps": 4, "train.global_batch": 4, "launch.nproc": ranks} | settings
        traced = {"output.trace": True, "output.timers": True}
        runs = [place.train(f"traced-{name}-{len(extra)}".replace(" ", "-"), MODELS["llama"], settings | extra, gpus=ranks)
                for extra in ({}, traced)]
        wrong = [what for answer in runs for what in problems(answer, ranks, 4)] or trace_problems(runs[1])
        found += [f"{name}: {what}" for what in wrong]
        if wrong:
            continue
        for key, count in (("host_waits", lambda r: r["host_waits"]), ("work", work_of)):
            plain, with_trace = (sorted(map(str, map(count, answer.reports))) for answer in runs)
            if plain != with_trace:
                found.append(f"{name}: {key} with a trace {with_trace}, without {plain}")
        # Not exact: a thread waits once less for an exchange that has ended already.
        plain, with_trace = (sum(r["stream_waits"] for r in answer.reports) for answer in runs)
        if with_trace > 1.05 * plain:
            found.append(f"{name}: streams wait {with_trace} times with a trace, {plain} times without")
    return found


def check_batches(place):
    """The host reads the rows of a step while the card works: each micro-batch's tokens and targets are copied behind work for
    which the host has not waited, the first micro-batch's behind the update of the step before."""
    found = []
    for name, micro_batches, settings in (("one", 1, {}), ("three", 3, {}), ("no-graphs", 1, {"train.cuda_graphs": "never"})):
        settings = settings | {"train.dtype": "bf16", "train.global_batch": 2 * micro_batches}
        runs = [place.train(f"batches-{name}-{steps}", MODELS["llama"], settings | {"train.steps": steps}) for steps in (3, 5)]
        wrong = [what for answer, steps in zip(runs, (3, 5)) for what in problems(answer, 1, steps)]
        found += [f"{name}: {what}" for what in wrong]
        if wrong:
            continue
        few, many = (answer.reports[0]["copies"]["host_to_device"] for answer in runs)
        grown = {key: many[key] - few[key] for key in ("behind_copies", "pageable_copies")}
        numbers = settings.get("train.cuda_graphs") != "never"  # the step's numbers are copied too
        if grown != {"behind_copies": 2 * (2 * micro_batches + numbers), "pageable_copies": 0}:
            found.append(f"{name}: two steps of {micro_batches} micro-batches copy to the device: {grown}")
    return found


def check_communicators(place):
    """NCCL communicators of the rank with most: one a group (a stage: two links and tied embeddings), none for the world of a mesh
    whose axes have groups of their own."""
    found = []
    for mesh, extra, most in (("two data ranks", {}, 1), ("tensor 2, two data ranks", {}, 2), ("two stages", {"train.global_batch": 4}, 3),
                              ("two stages, two data ranks", {"train.global_batch": 8}, 4)):
        ranks, _, keys = MESHES[mesh]
        settings = keys | {"launch.nproc": ranks, "train.steps": STEPS, "zero.stage": 1, "train.global_batch": 4} | extra
        answer = place.train(f"communicators-{mesh}".replace(" ", "-").replace(",", ""), MODELS["llama"], settings, gpus=ranks)
        found += [f"{mesh}: {what}" for what in problems(answer, ranks)]
        made = max((report["communicators"] for report in answer.reports), default=0)
        if made != most:
            found.append(f"{mesh}: a rank made {made} NCCL communicators, {most} are its groups")
    return found


def check_full_card(place):
    """Too little memory: exit code 3 and advice, before a step."""
    answer = place.train("full", MODELS["gpt2"], {"train.micro_batch": 64}, card_bytes=48 << 20)
    found = [] if answer.code == 3 else [f"exit code {answer.code}, 3 was expected:\n{training.tail(answer.text)}"]
    return found if "GPU 0" in answer.text else [*found, "the message does not name GPU 0"]


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
    return found


COMMANDS = (check_resume, check_resume_tensor, check_resume_pipeline, check_odd_sizes, check_product_attention, check_documents,
            check_frozen, check_speculation, check_device_fraction, check_graphs, check_graphs_pipeline, check_no_graphs,
            check_traced, check_batches, check_communicators, check_nccl_budget, check_full_card)
LONG = (check_doctor,)  # measures the processors and a drive too

# Family, settings that GPUs refuse for the family, and words of the message.
REFUSALS = {
    "cudnn-fp32": ("llama", {"train.attention": "cudnn"}, "train.attention: cudnn: cuDNN's attention takes 16 bits"),
    "cudnn-window": ("mistral", {"train.attention": "cudnn", "train.dtype": "bf16"}, "takes no model.sliding_window"),
    "cudnn-dropout": ("gpt2 with dropout", {"train.attention": "cudnn", "train.dtype": "bf16"}, "takes no model.dropout"),
    "cudnn-deterministic": ("llama", {"train.attention": "cudnn", "train.dtype": "bf16", "train.deterministic": True},
                            "adds in any order, and train.deterministic is true"),
    "ranks": ("llama", {"launch.nproc": 3}, "3 ranks need as many GPUs, and 2 are visible"),
}


def check_refusal(place, name, refusal):
    family, settings, words = refusal
    answer = place.train(f"refused-{name}", MODELS[family], settings, gpus=2)
    found = [] if answer.code == 2 else [f"exit code {answer.code}, 2 was expected:\n{training.tail(answer.text)}"]
    if words not in answer.text:
        found.append(f"the message lacks '{words}':\n{training.tail(answer.text)}")
    if any(report["work"]["launches"] for report in answer.reports):
        found.append("a kernel was launched before the refusal")
    return found


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
    """(name, function without arguments) of each check."""
    checks = [(f.__name__.removeprefix("check_"), lambda f=f: f(place)) for f in COMMANDS + (LONG if everything else ())]
    for name, refusal in REFUSALS.items():
        checks.append((f"refused {name}", lambda n=name, r=refusal: check_refusal(place, n, r)))
    for name, failure in FAILURES.items():
        checks.append((f"failed {name}", lambda n=name, f=failure: check_failure(place, n, f)))
    for grid, settings in (("grid", SETTINGS), ("pipeline", PIPELINES)):
        for number, combination in enumerate(covering(settings, is_valid, 3 if everything else 2)):
            text = " ".join(str(value) for value in combination.values())
            checks.append((f"{grid} {number}: {text}",
                           lambda n=f"{grid}-{number}", c=combination: check_combination(place, n, c)))
    return checks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser)
    parser.add_argument("--all", action="store_true", help="any three settings meet, not any two")
    parser.add_argument("--only", default="", help="checks whose name has this in it")
    args = training.parse(parser)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="sluice-null-gpu-") as folder:
        place = training.Place(args, folder)
        checks = [check for check in named_checks(place, args.all) if args.only in check[0]]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as workers:
            for (name, _), found in zip(checks, workers.map(lambda check: check[1](), checks)):
                print(f"{'FAILED' if found else 'ok':6s} {name}", *found, sep="\n       " if found else "", flush=True)
                bad += bool(found)
    print(f"{len(checks) - bad} of {len(checks)} as they should be")
    return 1 if bad or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
