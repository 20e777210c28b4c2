#!/usr/bin/env python3
"""Trainings on the emulated GPU, the null GPU that computes: against the same trainings on CPU ranks, and bit for bit among
themselves, whatever the order in which streams do their work.

Usage: emulated_test.py [--all] [--sluice PROGRAM] [--libraries FOLDER] [--jobs N] [--only TEXT]

Without --all each value of each setting has a run, with it any two meet.  Exit codes: 0; 1 where a run is not as it should be;
77 where the null GPU or its module is not built.
"""
import json
import pathlib
import re
import sys
import threading

import training
from covering import grid_checks
from emulated_bits import BF16, BIT_CHECKS, LAYERS, NARROW, ROUNDED, SPECULATING, TWO, WAIT_CHECKS
from runs_test import PIPELINES, SETTINGS, is_valid, settings_of
from small_runs import MESHES, MODELS, SEQUENCE, STAGES, STEPS, problems

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "kit"))
from programs import NORMS, PARITY, Failed, differences  # noqa: E402

ROWS = ("plain", "documents", "conversations")
SCHEDULES = ("early", "late", "1", "2", "3")
MORE = {"rows": ROWS, "train.cuda_graphs": ("auto", "never"), "schedule": SCHEDULES}
FLASH = {"train.attention": ("flash",)}  # cuDNN's attention is not computed
# Of the kit's limits: the emulated GPU comes this much closer to CPU ranks than they ask of a card.
CLOSER = {"fp32": 1e-2, "bf16": 5e-2, "fp16": 5e-2}
# Keys that change a training's numbers. Stages, tiers, orders and recomputation do not.
NUMBERS = ("model.", "train.dtype", "train.matmul", "train.global_batch", "optimizer.", "offload.states_dtype", "parallel.tensor", "parallel.sequence",
           "parallel.pipeline", "launch.nproc", "train.steps", "data.", "train.freeze", "loss_scale.")
# What of these is rounded depends on where gradients are and how often they are reduced.
ROUNDING = ("offload.", "zero.stage", "train.accumulation_order")


class Oracles:
    """Trainings on CPU ranks, each once.  Thread-safe."""

    def __init__(self, place):
        self.place, self.mutex, self.known = place, threading.Lock(), {}

    def steps(self, model, settings):
        keys = NUMBERS + (ROUNDING if "offload.gradients_dtype" in settings else ())
        settings = {key: value for key, value in settings.items() if key.startswith(keys)} | {"launch.backend": "gloo"}
        key = json.dumps([model, settings], sort_keys=True)
        with self.mutex:
            entry = self.known.setdefault(key, {"name": f"cpu-{len(self.known)}", "mutex": threading.Lock()})
        with entry["mutex"]:
            if "answer" not in entry:
                entry["answer"] = self.place.train(entry["name"], model, settings, gpus=0)
        answer = entry["answer"]
        if answer.code != 0:
            raise Failed(f"CPU ranks end with exit code {answer.code}:\n{training.tail(answer.text)}")
        return answer.steps


def compared(steps, oracle, dtype):
    """(what is wrong, a note) with the losses and norms of a training beside those of CPU ranks."""
    loss, norm = differences(steps, oracle)
    note = f"losses differ by {loss:.1e}, norms by {norm:.1e}"
    limit = CLOSER[dtype] * PARITY[dtype]
    wrong = loss > limit or norm > NORMS * limit or [s["skipped"] for s in steps] != [s["skipped"] for s in oracle]
    return ([f"{note} from CPU ranks'"] if wrong else []), note


def check_training(oracles, name, model, settings, computes="early"):
    """One training on the emulated GPU: (what is wrong, a note)."""
    ranks = settings.get("launch.nproc", 1)
    answer = oracles.place.train(name, model, settings, gpus=ranks, computes=computes)
    found = problems(answer, ranks, settings.get("train.steps", STEPS))
    if found:
        return found, ""
    try:
        return compared(answer.steps, oracles.steps(model, settings), settings.get("train.dtype", "fp32"))
    except Failed as failed:
        return [str(failed)], ""


def check_combination(oracles, name, combination):
    place = oracles.place
    settings = settings_of(combination, place.folder / name / "swap")
    settings |= {"plain": {}, "documents": {"data.document_mask": True}, "conversations": place.talks(20, 50)}[combination["rows"]]
    settings |= {"optimizer.lr": 1e-3, "loss_scale.initial": 1024}
    model = MODELS[combination["family"]]
    if "parallel.pipeline" in settings:  # as in runs_test.py
        model = model | {"layers": 7, "tie_embeddings": settings["offload.gradients"] != "nvme"}
    return check_training(oracles, name, model, settings, combination["schedule"])


# ---- what the grid does not have: name, model, settings ----

def others(place):
    fp8 = {"train.dtype": "bf16", "train.matmul": "fp8"}
    odd = MODELS["gpt2"] | {"vocab": 1003, "layers": 7, "seq": 61}
    return (
        ("fp8", MODELS["llama"], fp8), ("fp8 gpt2 dropout", MODELS["gpt2 with dropout"], fp8 | {"train.global_batch": 4}),
        ("fp8 sequence", MODELS["llama"] | {"ffn": 192}, fp8 | SEQUENCE | {"launch.nproc": 2, "zero.stage": 3}),
        ("fp8 zero bubble", MODELS["mistral"], fp8 | STAGES | {"parallel.schedule": "zero_bubble", "launch.nproc": 2, "train.global_batch": 4}),
        ("deterministic", MODELS["llama"], {"train.dtype": "bf16", "train.deterministic": True}),
        ("frozen", MODELS["gpt2"], {"train.freeze": ["wte", "h.0.*"], "zero.stage": 2}),
        ("bf16 gradients", MODELS["qwen2"], {"train.dtype": "bf16", "train.global_batch": 6} | ROUNDED),
        ("bf16 gradients on the device", MODELS["gpt2"], BF16 | LAYERS[0] | {"offload.gradients_dtype": "bf16", "train.global_batch": 6}),
        ("bf16 gradients of two data ranks", MODELS["gpt2"], BF16 | TWO | ROUNDED),
        ("bf16 gradients of replicas", MODELS["llama"],
         {"train.dtype": "bf16", "launch.nproc": 2} | SEQUENCE | ROUNDED | {"train.accumulation_order": "micro"}),
        ("bf16 moments", MODELS["gpt2 with dropout"], BF16 | TWO | NARROW | {"zero.stage": 0}),
        ("odd", odd, {"train.dtype": "bf16", "zero.stage": 3}),
        ("odd activations off the device", odd, {"train.dtype": "bf16", "offload.activations": "host"}),
        ("odd inputs off the device", odd, {"train.dtype": "bf16", "offload.activations": "host", "recompute.mode": "full"}),
        ("odd sequence", odd | {"seq": 62}, SEQUENCE | {"launch.nproc": 2, "data.document_mask": True}),
        ("heads of 36", MODELS["llama"] | {"head_dim": 36}, {"train.dtype": "fp16", "loss_scale.initial": 1024}),
        ("two chunks of rows", odd | {"layers": 1, "seq": 65}, {"train.dtype": "bf16", "train.micro_batch": 128, "train.global_batch": 128}),
        ("autograd", MODELS["gpt2"] | {"explicit_units": False}, {}),
        ("three data ranks", MODELS["qwen2"], {"launch.nproc": 3, "zero.stage": 3, "train.dtype": "bf16"}),
        ("bf16 reductions of three data ranks", MODELS["gpt2"], BF16 | {"launch.nproc": 3, "zero.stage": 2, "zero.reduce_dtype": "bf16"}),
        ("many documents", MODELS["llama"], place.talks(4, 4) | {"train.dtype": "bf16", "train.steps": 4}))


def check_other(oracles, name, model, settings):
    settings = {"train.steps": STEPS, "optimizer.lr": 1e-3} | settings
    ranks = settings.get("launch.nproc", 1)
    if ranks == 3:
        settings["train.global_batch"] = 6
    return check_training(oracles, name.replace(" ", "-"), model, settings, "late")


def check_commands(oracles, name="commands", ranks=1, mesh=None):
    """A run that evaluates, saves and goes on has the losses of one that never stopped; eval and generate give what CPUs give."""
    place, model = oracles.place, MODELS["llama"]
    settings = {"data.split": [1, 1], "train.eval_every": 2, "train.eval_steps": 1, "launch.nproc": ranks, "optimizer.lr": 1e-3,
                "zero.stage": 3} | (mesh or {})
    saved = place.train(name, model, settings | {"train.steps": 2, "checkpoint.at_end": True}, gpus=ranks, computes="late")
    found = problems(saved, ranks, 2)
    if found:
        return found, ""
    config = place.config(name, model, settings | {"train.steps": 4})
    resumed = place.command(name, ["train", config, "--resume", "auto"], ranks, computes="1")
    found = problems(resumed, ranks, 4)
    if found:
        return found, ""
    found, note = compared(resumed.steps, oracles.steps(model, settings | {"train.steps": 4}), "fp32")
    run, text = saved.folder, place.folder / "short.txt"
    text.write_text("a few words of a text " * 20, encoding="ascii")
    for arguments, same in ((["eval", config, "--checkpoint", run, "--text", text, "--json"], close_numbers),
                            (["generate", "--checkpoint", run, "--prompt", "abc", "--max-tokens", "8", "--temperature", "0"], same_words)):
        answers = [place.command(name, arguments + ["--quiet", "--set", f"launch.backend={backend}"], gpus, computes="late")
                   for gpus, backend in ((ranks, "nccl"), (0, "gloo"))]
        texts = [answer.text for answer in answers]
        if any(answer.code for answer in answers) or not same(*texts):
            found.append(f"{arguments[0]}: exit codes {[a.code for a in answers]}, on the GPU\n{training.tail(texts[0])}\n"
                         f"       and on the CPU\n{training.tail(texts[1])}")
    return found, note


# A message that never comes: its number among rank 0's, and the mesh.
LOST = {"lost message": (12, {"zero.stage": 2}), "lost message of a later step": (26, {"zero.stage": 2}),
        "lost message of two stages": (3, STAGES)}


def check_lost_message(place, name):
    """The run ends with the operation that waited, and no step has used what did not come."""
    number, mesh = LOST[name]
    answer = place.train(name.replace(" ", "-"), MODELS["llama"], mesh | {"launch.nproc": 2, "train.steps": 4, "train.global_batch": 4, "launch.timeout": 8},
                         gpus=2, computes="early", variables={"NULL_GPU_LOSE_SEND": str(number)})
    if answer.code == 5 and re.search(r"#\d+ of group .* failed on rank . of 2: not done 8000 ms after the call", answer.text):
        return [], ""
    return [f"exit code {answer.code}:\n{training.tail(answer.text)}"], ""


def check_not_finite(place, ranks):
    """No weight takes up a value that is not finite, in a run that updates in the backward, so the error names the unit that made it."""
    rank = ranks - 1
    answer = place.train(f"not-finite-{ranks}", MODELS["llama"], {"train.clip": 0, "train.steps": 4, "launch.nproc": ranks}, gpus=ranks, computes="late",
                         variables={"SLUICE_FAILPOINTS": f"plan.passing_gradients:nan;engine.forward.2.2:rank={rank}:nan"})
    found = [] if answer.code == 5 else [f"exit code {answer.code}:\n{training.tail(answer.text)}"]
    if f"rank {rank}, unit layers.1, forward, micro-batch 0" not in answer.text:
        found.append(f"the message does not name the unit:\n{training.tail(answer.text)}")
    return found, ""


# A driver holds some 1000 kernels. A rank that fills it stops in its next launch, and so does each thread that copies.
MOST_TASKS = 600


def check_run_ahead(place):
    """While copies run beside the card, the host is never far ahead of it."""
    name, model = "run-ahead", MODELS["llama"] | {"layers": 8}
    settings = SPECULATING | {"zero.stage": 2, "offload.optimizer": "host", "train.accumulation_order": "layer", "train.micro_batch": 1,
                              "train.global_batch": 24, "train.steps": STEPS, "train.dtype": "bf16"}
    answer = place.train(name, model, settings, gpus=1, computes="late")
    found, most = problems(answer, 1, STEPS), max((report["most_tasks"] for report in answer.reports), default=0)
    if most > MOST_TASKS:
        found.append(f"a stream held {most} tasks, more than {MOST_TASKS}")
    return found, f"a stream held {most} tasks at most"


def same_words(text, other):
    """But for the last line, which has times."""
    return text.splitlines()[:-1] == other.splitlines()[:-1]


def close_numbers(text, other):
    """Two JSON texts of the same form with numbers that differ by 1e-4 at most."""
    def close(a, b):
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a if "second" not in key and "per_s" not in key)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(close, a, b))
        return abs(a - b) <= PARITY["fp32"] * abs(b) if isinstance(a, float) else a == b
    return close(json.loads(text), json.loads(other))


def named_checks(place, everything):
    """(name, function without arguments) of each check; the function returns what is wrong, and a note."""
    oracles = Oracles(place)
    checks = [("commands", lambda: check_commands(oracles)),
              ("run ahead", lambda: check_run_ahead(place)),
              ("not finite", lambda: check_not_finite(place, 1)),
              ("not finite on one of two ranks", lambda: check_not_finite(place, 2)),
              ("commands of two stages", lambda: check_commands(oracles, "commands-2", 2, STAGES | {"train.global_batch": 4}))]
    for name, model, settings in others(place):
        checks.append((name, lambda n=name, m=model, s=settings: check_other(oracles, n, m, s)))
    checks += grid_checks({"grid": SETTINGS | MORE | FLASH, "pipeline": PIPELINES | MORE}, is_valid, 2 if everything else 1,
                          lambda name, combination: check_combination(oracles, name, combination))
    checks += [(name, lambda n=name: check_lost_message(place, n)) for name in LOST]
    for name, check in BIT_CHECKS + WAIT_CHECKS:
        checks.append((name, lambda c=check: c(place, everything)))
    return checks


if __name__ == "__main__":
    sys.exit(training.main(__doc__, "any two settings meet", named_checks, computes="early"))
