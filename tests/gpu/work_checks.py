"""Checks of runs_test.py that compare what a card does: with graphs and without, with a trace and without, and its batches."""
import collections
import json
import re

import training
from small_runs import MESHES, MODELS, SEQUENCE, STAGES, STEPS, problems

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
    """With a loss factor that changes in every step. In stage 3 graphs round master weights too."""
    return [f"{family}, stage {stage}: {what}" for family, stage in (("llama", 2), ("gpt2 with dropout", 2), ("llama", 3))
            for what in graph_problems(place, family, stage)]


def graph_problems(place, family, stage):
    name = f"graphs-{family}-{stage}".replace(" ", "-")
    settings = {"train.dtype": "fp16", "train.global_batch": 4, "loss_scale.window": 1, "zero.stage": stage}
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


# Of rows of 64 tokens: the calls of attention have room for 4 documents in one step and for 8 in the next; for 32 in every step, which
# backward takes in several calls.
TALKS = {"some": (20, 50), "many": (4, 4)}


def check_graphs_documents(place):
    """Rows of conversations, which differ from step to step: every operator of attention, data-parallel ranks, stages that load tokens
    and stages that only have blocks."""
    found = []
    for name, family, dtype, talks, more, ranks in (
            ("llama", "llama", "bf16", "some", {"train.global_batch": 6}, 1), ("gpt2", "gpt2", "fp32", "some", {"offload.optimizer": "host"}, 1),
            ("many", "gpt2", "bf16", "many", {}, 1), ("many-fp32", "llama", "fp32", "many", {"recompute.mode": "selective"}, 1),
            ("deterministic", "llama", "bf16", "many", {"train.deterministic": True}, 1),
            ("window", "mistral", "fp16", "some", {"recompute.mode": "full", "loss_scale.window": 1}, 1),
            ("dropout", "gpt2 with dropout", "bf16", "some", {}, 1), ("two-ranks", "llama", "fp32", "some", {"zero.stage": 3}, 2),
            ("two-ranks-bf16", "gpt2", "bf16", "some", {}, 2),
            ("stages", "gpt2", "fp32", "some", STAGES | {"train.global_batch": 10}, 2),
            ("four-stages", "llama", "bf16", "some", {"parallel.pipeline": 4, "train.global_batch": 10}, 4)):
        settings = place.talks(*TALKS[talks]) | {"train.dtype": dtype, "data.split": [3, 1]} | more
        wrong, answer = with_and_without_graphs(place, f"graphs-documents-{name}", MODELS[family] | {"layers": 7}, settings, ranks)
        wrong += [f"a rank launched {r['graph_launches']} graphs in {LAUNCHED} steps" for r in of_ranks(answer)
                  if r["graph_launches"] == 0 or r["graph_launches"] % LAUNCHED]
        found += [f"{name}: {what}" for what in wrong]
    return found


def check_no_graphs(place):
    """Steps that do not repeat themselves."""
    model = MODELS["gpt2 with dropout"] | {"explicit_units": False}
    answer = place.train("no-graphs-autograd", model, {"train.dtype": "bf16", "train.steps": STEPS})
    found = problems(answer, 1)
    return found + ["a graph was launched"] * any(r["graph_launches"] for r in answer.reports)


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
    for name, ranks, settings in (("graphs", 1, {"zero.stage": 2}), ("rounded", 1, {"zero.stage": 3, "train.dtype": "fp16"}),
                                  ("stage 3", 2, {"zero.stage": 3, "offload.optimizer": "host"}),
                                  ("sequence", 2, SEQUENCE | {"zero.stage": 1}),
                                  ("stages", 2, STAGES | {"train.global_batch": 8, "zero.stage": 2})):
        settings = {"train.dtype": "bf16", "train.steps": 4, "train.global_batch": 4, "launch.nproc": ranks} | settings
        traced = {"output.trace": True, "output.timers": True, "output.nvtx": True}
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
    """The host reads the rows of a step while the card works: each micro-batch's tokens, targets and documents are copied behind work
    for which the host has not waited, the first micro-batch's behind the update of the step before."""
    found = []
    for name, micro_batches, settings in (("one", 1, {}), ("three", 3, {}), ("no-graphs", 1, {"train.cuda_graphs": "never"}),
                                          ("documents", 3, place.talks(20, 50))):
        settings = settings | {"train.dtype": "bf16", "train.global_batch": 2 * micro_batches}
        runs = [place.train(f"batches-{name}-{steps}", MODELS["llama"], settings | {"train.steps": steps}) for steps in (3, 5)]
        wrong = [what for answer, steps in zip(runs, (3, 5)) for what in problems(answer, 1, steps)]
        found += [f"{name}: {what}" for what in wrong]
        if wrong:
            continue
        few, many = (answer.reports[0]["copies"]["host_to_device"] for answer in runs)
        grown = {key: many[key] - few[key] for key in ("behind_copies", "pageable_copies")}
        numbers = settings.get("train.cuda_graphs") != "never"  # the step's numbers are copied too
        tensors = 3 if "data.sft" in settings else 2
        if grown != {"behind_copies": 2 * (tensors * micro_batches + numbers), "pageable_copies": 0}:
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


WORK_CHECKS = (check_graphs, check_graphs_pipeline, check_graphs_documents, check_no_graphs, check_traced, check_batches, check_communicators)
