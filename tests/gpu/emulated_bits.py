"""Checks of emulated_test.py that compare bits: trainings that must not depend on schedules, graphs, stages, tiers, orders and
recomputation; and whether the comparison sees a wait that is missing."""
import hashlib
import json

import training
from small_runs import MODELS, SEQUENCE, STAGES, STEPS, problems

TENSOR = {"parallel.tensor": 2}
NUMBERS = ("step", "loss", "grad_norm", "lr", "loss_scale", "skipped")


def bits_of(place, name, answer):
    """All digits of a run's numbers, and its final weights."""
    folder = place.folder / name / "weights"
    done = place.command(name, ["checkpoint", "export", answer.folder, "-o", folder, "--quiet"], gpus=0)
    if done.code != 0:
        raise RuntimeError(f"export: exit code {done.code}:\n{training.tail(done.text)}")
    weights = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.safetensors"))]
    return [[repr(step[key]) for key in NUMBERS] for step in answer.steps], weights


def train(place, name, model, settings, schedule, variables=None):
    """(what is wrong, bits, answer) of a run that saves its weights."""
    ranks = settings.get("launch.nproc", 1)
    settings = {"train.steps": STEPS, "optimizer.lr": 1e-3, "loss_scale.initial": 1024, "checkpoint.at_end": True} | settings
    if "nvme" in settings.values():
        settings["offload.nvme_path"] = [str(place.folder / name / "swap")]
    if "offload.speculate" in settings:
        variables = (variables or {}) | IN_TIME
    answer = place.train(name, model, settings, gpus=ranks, computes=schedule, variables=variables)
    found = problems(answer, ranks, settings["train.steps"])
    return found, None if found else bits_of(place, name, answer), answer


def difference(bits, other):
    (steps, weights), (other_steps, other_weights) = bits, other
    for step, other_step in zip(steps, other_steps):
        for key, a, b in zip(NUMBERS, step, other_step):
            if a != b:
                return f"{key} of step {step[0]} is {a}, not {b}"
    return "" if weights == other_weights else "weights differ, losses and norms do not"


def device_plan(answer):
    return json.loads((answer.folder / "plan.json").read_text(encoding="ascii"))["tiers"]["device"]


def updates_in_backward(answer):
    """Whether a rank decides more often than once a step: each update in the backward has its own decision."""
    return any(sum(count for kernel, count in report["kernels"].items() if "step_clip" in kernel) > STEPS for report in answer.reports)


STAGED = [{"zero.stage": stage} for stage in (0, 2, 3)]
# A rank alone adds gradients of several micro-batches where they are written; off the device their sum has another order.
UPDATED_OFF = [{"offload.optimizer": "host"}, {"zero.stage": 2, "offload.optimizer": "nvme"}]
ON_HOST = {"zero.stage": 3, "offload.optimizer": "host", "offload.gradients": "host", "offload.parameters": "host"}
ON_NVME = {key: "nvme" if value == "host" else value for key, value in ON_HOST.items()}
TIERED = [ON_HOST, ON_NVME, {"zero.stage": 2, "offload.optimizer": "nvme", "offload.gradients": "host"}]
ACTIVATIONS = [{"offload.activations": "host", "recompute.mode": "full"}, {"zero.stage": 3, "offload.activations": "nvme"}]
RECOMPUTED = [{"recompute.mode": "selective"}, {"recompute.mode": "full"}]
EAGER = [{"train.cuda_graphs": "never"}]
LAYERS = [{"train.accumulation_order": "layer"}]
SHARED = {"zero.stage": 2, "offload.optimizer": "nvme", "offload.host_fraction": 0.5}
# Updates before the norm is known, from the fifth step on; they begin before the last backward is known to have ended.
SPECULATING = {"offload.speculate": "auto", "offload.chunk_bytes": 16384, "offload.chunks": 2, "zero.bucket_bytes": 16384}
IN_TIME = {"SLUICE_FAILPOINTS": "engine.norm:delay=200"}
EARLY = [change | SPECULATING for change in (
    ON_HOST, {"offload.optimizer": "host"}, {"zero.stage": 2, "offload.optimizer": "host", "offload.device_fraction": 0.4},
    {"zero.stage": 2, "offload.optimizer": "host", "train.accumulation_order": "layer"}, {"zero.stage": 2, "offload.optimizer": "nvme"},
    SHARED)]
ROUNDED = {"zero.stage": 2, "offload.optimizer": "host", "offload.gradients": "host", "offload.gradients_dtype": "bf16",
           "train.accumulation_order": "layer"}
SENDING_BF16 = {"zero.reduce_dtype": "bf16", "zero.bucket_bytes": 16384}
NARROW = {"offload.states_dtype": "bf16"}
IN_PART = [{"zero.stage": 2, "offload.optimizer": tier, "offload.device_fraction": 0.4} for tier in ("host", "nvme")] + [SHARED]
# Gradients of blocks take the place of activations, small ones too; the run that the others are compared with keeps them.
PASSING = {"SLUICE_FAILPOINTS": "plan.passing_gradients:nan"}
# Without a clip, blocks whose gradients pass are updated in the backward. A clip that is never reached has the same bits.
UNREACHED, UNCLIPPED = {"train.clip": 1e9}, {"train.clip": 0}
IN_BACKWARD = [UNCLIPPED | change for change in (*STAGED, {}, *RECOMPUTED, *EAGER)]
ALONE = STAGED + UPDATED_OFF + ACTIVATIONS + RECOMPUTED + EAGER
BF16 = {"train.dtype": "bf16"}
TWO = {"launch.nproc": 2, "train.global_batch": 8}

# Family, settings of all runs, and what must not change their bits.
SAME_BITS = {
    "one rank": ("llama", BF16 | {"train.global_batch": 6}, ALONE),
    "tiers": ("llama", BF16, ALONE + TIERED),
    "passing gradients": ("llama", BF16, ALONE),
    "passing gradients in layer order": ("gpt2 with dropout", {"train.dtype": "fp16", "train.global_batch": 6} | LAYERS[0], ALONE),
    "passing gradients of data ranks": ("llama", BF16 | {"launch.nproc": 2}, ALONE),
    "passing gradients of replicas": ("gpt2", SEQUENCE | {"zero.stage": 2, "launch.nproc": 4}, STAGED + RECOMPUTED + EAGER),
    "passing gradients of stages": ("llama", STAGES | BF16 | {"launch.nproc": 2, "train.global_batch": 2}, STAGED + RECOMPUTED + EAGER),
    "passing shards in layer order": ("gpt2 with dropout", TWO | {"train.dtype": "fp16", "zero.stage": 2} | LAYERS[0], ALONE),
    "passing gradients of tensor ranks": ("qwen2", SEQUENCE | {"launch.nproc": 2}, ALONE),
    "passing gradients, updated in the backward": ("llama", BF16 | UNREACHED, IN_BACKWARD),
    "passing gradients, updated in the backward, fp32": ("mistral", UNREACHED | {"optimizer.type": "lion", "model.tie_embeddings": False}, IN_BACKWARD),
    "passing gradients, updated in the backward in layer order": ("gpt2 with dropout", BF16 | UNREACHED | {"train.global_batch": 6} | LAYERS[0], IN_BACKWARD),
    "passing gradients, updated in the backward of data ranks": ("gpt2", BF16 | UNREACHED | {"launch.nproc": 2}, IN_BACKWARD),
    "passing gradients, updated in the backward of stages": ("llama", STAGES | BF16 | UNREACHED | {"launch.nproc": 2, "train.global_batch": 2}, IN_BACKWARD),
    "passing gradients, updated in the backward of tensor ranks": ("gpt2", TENSOR | UNREACHED | {"launch.nproc": 2}, IN_BACKWARD),
    "passing gradients, updated in the backward of replicas": ("qwen2", SEQUENCE | UNREACHED | {"launch.nproc": 4}, IN_BACKWARD),
    "dropout": ("gpt2 with dropout", {"train.dtype": "fp16"}, ALONE + TIERED),
    "fp32": ("mistral", {"optimizer.type": "lion"}, ALONE + TIERED),
    "fp8": ("qwen2", BF16 | {"train.matmul": "fp8", "train.global_batch": 4}, ALONE),
    "two data ranks": ("llama", BF16 | TWO, ALONE + TIERED + LAYERS),
    "two data ranks that send bf16": ("llama", BF16 | TWO | SENDING_BF16, ALONE + TIERED + LAYERS),
    "passing gradients, sent in bf16 and updated in the backward": ("gpt2", BF16 | UNREACHED | SENDING_BF16 | {"launch.nproc": 3, "model.vocab": 321},
                                                                    IN_BACKWARD),
    "sequence": ("llama", SEQUENCE | BF16 | {"launch.nproc": 2}, ALONE + TIERED[::2]),
    "bf16 gradients": ("llama", BF16 | ROUNDED | {"train.global_batch": 6, "train.steps": 8, "train.clip": 0},
                       [ON_NVME, ON_HOST | SPECULATING, *TIERED, {"offload.gradients": "nvme"}, *RECOMPUTED, *EAGER, SPECULATING]),
    "passing bf16 gradients": ("llama", BF16 | {"offload.gradients_dtype": "bf16"}, STAGED + RECOMPUTED + EAGER),
    # Widths that leave padding behind parameters.
    "bf16 gradients with padding": ("gpt2", BF16 | {"offload.gradients_dtype": "bf16", "model.hidden": 72, "model.heads": 3, "model.vocab": 321},
                                    STAGED + RECOMPUTED + EAGER),
    "passing bf16 gradients, updated in the backward": ("gpt2 with dropout", BF16 | UNREACHED | {"offload.gradients_dtype": "bf16"}, IN_BACKWARD),
    "bf16 moments": ("llama", BF16 | NARROW, IN_PART + ALONE + TIERED),
    "bf16 moments of replicas": ("gpt2", NARROW | SEQUENCE | STAGES | {"launch.nproc": 4, "train.global_batch": 4}, IN_PART + STAGED + TIERED[::2]),
    "bf16 moments of lion": ("mistral", NARROW | TWO | {"optimizer.type": "lion"}, IN_PART + ALONE + TIERED),
    "early updates": ("llama", BF16 | {"train.steps": 8, "train.clip": 0}, EARLY),
    "early updates of two ranks": ("gpt2", BF16 | TWO | {"train.steps": 8, "train.clip": 0}, EARLY),
    "tensor": ("gpt2", TENSOR | {"launch.nproc": 2}, ALONE + TIERED[::2]),
    "stages and data ranks": ("qwen2", STAGES | BF16 | {"launch.nproc": 4, "train.global_batch": 8}, STAGED + TIERED + RECOMPUTED + EAGER),
} | {f"stages {schedule}": ("llama", STAGES | BF16 | {"parallel.schedule": schedule, "launch.nproc": 2, "train.global_batch": 10} | more, ALONE)
     for schedule, more in (("gpipe", {}), ("1f1b", {}), ("interleaved", {"parallel.virtual_stages": 2}), ("zero_bubble", {}))}


def check_same_bits(place, name, everything):
    family, settings, changes = SAME_BITS[name]
    model = MODELS[family] | ({"layers": 7, "tie_embeddings": False} if "parallel.pipeline" in settings else {})
    folder = "bits-" + name.replace(" ", "-")
    found, bits, keeps = train(place, folder, model, settings, "early")
    passing = PASSING if name.startswith("passing") else None
    if found:
        return found, ""
    runs = [({}, schedule) for schedule in ("late", "1", "2")] + [(change, ("late", "3", "4", "5")[i % 4]) for i, change in enumerate(changes)]
    if everything:
        runs += [(change, schedule) for change in [{}, *changes] for schedule in ("early", "late", "6")]
    else:
        runs = runs[6 if "updated in the backward" in name else 0::6]  # the others of its kind have the runs before
    for number, (change, schedule) in enumerate(runs):
        wrong, other, answer = train(place, f"{folder}-{number}", model, settings | change, schedule, passing)
        wrong = wrong or [text for text in [difference(other, bits)] if text]
        if passing and not change and device_plan(answer) == device_plan(keeps):
            wrong.append("its plan keeps the gradients too")
        if passing and updates_in_backward(answer) != (change.get("train.clip") == 0):
            wrong.append("it updates at another place of the step")
        found += [f"{change}, schedule {schedule}: {what}" for what in wrong]
    return found, f"{1 + len(runs)} runs"


BIT_CHECKS = tuple((f"bits {name}", lambda place, everything, n=name: check_same_bits(place, n, everything)) for name in SAME_BITS)

# ---- a wait that is missing ----

TRIED_WAITS = range(4, 52, 4)  # numbers of waits for work that is not done; without --all the first that is seen is enough
MISSING = {"tiers": ("llama", ON_HOST | {"train.dtype": "bf16", "train.global_batch": 4}),
           "two data ranks": ("gpt2", {"zero.stage": 3, "launch.nproc": 2, "train.global_batch": 4}),
           "two stages": ("llama", STAGES | {"launch.nproc": 2, "train.global_batch": 4, "train.dtype": "bf16"})}


def check_missing_waits(place, name, everything):
    """Runs of which each leaves out one wait of a stream for work that is not done: some must show it. Not all: two waits may order the
    same work, and one schedule does not show every order."""
    family, settings = MISSING[name]
    folder = "waits-" + name.replace(" ", "-")
    found, bits, _ = train(place, folder, MODELS[family], settings, "late")
    if found:
        return found, ""
    tried, seen = [], []
    for number in TRIED_WAITS:
        tried.append(number)
        wrong, other, _ = train(place, f"{folder}-{number}", MODELS[family], settings, "late", {"NULL_GPU_SKIP_WAIT": str(number)})
        if wrong or difference(other, bits):
            seen.append(number)
            if not everything:
                break
    note = f"{len(seen)} of {len(tried)} missing waits are seen; not seen: {sorted(set(tried) - set(seen))}"
    return ([] if seen else [note]), note


WAIT_CHECKS = tuple((f"missing waits {name}", lambda place, everything, n=name: check_missing_waits(place, n, everything)) for name in MISSING)
