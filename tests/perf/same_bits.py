#!/usr/bin/env python3
"""Compares two builds bit by bit: losses, norms, validation losses and saved states of many configurations.

Usage: same_bits.py FORMER_PROGRAM PROGRAM [--count 64] [--only NAME] [--keep DIR]

Draws configurations such that every pair of values of two dimensions that can be together is tried: families, types,
ZeRO stages with tiers, orders, meshes, recomputation, and speculation, image or resumption. Both programs train each
for a few steps on CPUs. A configuration that both refuse with the same message is not counted. Exit status 1 when
anything differs.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

STEPS = 6
LIMIT_S = 240

SMALL = {"model.layers": 4, "model.hidden": 48, "model.heads": 4, "model.seq": 24, "data.tokenizer": "bytes",
         "train.steps": STEPS, "train.micro_batch": 2, "train.eval_every": 3, "train.eval_steps": 1,
         "train.log_every": 100, "train.sample_tokens": 0, "optimizer.lr": "3e-3", "schedule.warmup_steps": 1,
         "offload.chunk_bytes": "16KiB", "offload.chunks": 3, "offload.direct": "false", "zero.bucket_bytes": "32KiB",
         "checkpoint.every": 3, "checkpoint.keep": 0, "launch.threads": 1, "launch.backend": "gloo",
         "memory.host": "none"}


def on(optimizer, parameters="device", gradients="device", activations="device"):
    return {"offload.optimizer": optimizer, "offload.parameters": parameters, "offload.gradients": gradients,
            "offload.activations": activations}


DIMENSIONS = {
    "family": {"gpt2": {"model.type": "gpt2"}, "llama": {"model.type": "llama", "model.kv_heads": 2},
               "mistral": {"model.type": "mistral", "model.sliding_window": 9, "model.tie_embeddings": "false"},
               "qwen2": {"model.type": "qwen2", "model.kv_heads": 2},
               "gpt2 autograd": {"model.type": "gpt2", "model.explicit_units": "false"}},
    "dtype": {"fp32": {}, "bf16": {"train.dtype": "bf16", "train.matmul": "fp32"},
              "bf16 native": {"train.dtype": "bf16", "train.matmul": "native"},
              "fp16": {"train.dtype": "fp16", "train.matmul": "fp32"}},
    "states": {"stage 0": {"zero.stage": 0}, "stage 1": {"zero.stage": 1}, "stage 2": {"zero.stage": 2},
               "stage 3": {"zero.stage": 3}, "stage 0 host": {"zero.stage": 0, **on("host")},
               "stage 1 nvme": {"zero.stage": 1, **on("nvme")},
               "stage 2 host": {"zero.stage": 2, **on("host", gradients="host")},
               "stage 2 nvme": {"zero.stage": 2, **on("nvme", gradients="nvme", activations="nvme")},
               "stage 3 host": {"zero.stage": 3, **on("host", "host", "host", "host")},
               "stage 3 nvme": {"zero.stage": 3, **on("nvme", "nvme", "nvme", "nvme")},
               "stage 3 mixed": {"zero.stage": 3, **on("nvme", "host", "host")},
               "stage 3 shared": {"zero.stage": 3, **on("nvme", "host", "host"), "offload.host_fraction": 0.5},
               "stage 3 in part": {"zero.stage": 3, **on("host"), "offload.device_fraction": 0.5}},
    "order": {"micro": {}, "layer": {"train.accumulation_order": "layer"}, "one": {"train.global_batch": "auto"}},
    "mesh": {"dp 1": {"launch.nproc": 1}, "dp 2": {"launch.nproc": 2}, "dp 3": {"launch.nproc": 3},
             "tp 2": {"launch.nproc": 2, "parallel.tensor": 2},
             "sp 2": {"launch.nproc": 2, "parallel.tensor": 2, "parallel.sequence": "true"},
             "pp 2": {"launch.nproc": 2, "parallel.pipeline": 2},
             "pp 2 zero bubble": {"launch.nproc": 2, "parallel.pipeline": 2, "parallel.schedule": "zero_bubble"},
             "tp 2 pp 2": {"launch.nproc": 4, "parallel.tensor": 2, "parallel.pipeline": 2}},
    "recompute": {"keep": {}, "full": {"recompute.mode": "full"}, "selective": {"recompute.mode": "selective"}},
    "more": {"plain": {}, "resume": {}, "speculate": {"offload.speculate": "auto", "train.clip": 100},
             "image": {"offload.image": "true"}, "narrow": {"offload.states_dtype": "bf16"},
             "dropout": {"model.dropout": 0.1}, "persist": {"zero.persist_below": 3000}},
}


def draw(count):
    """Configurations as (name, settings); greedy over the pairs of values that were not seen."""
    rng = random.Random(2026)
    seen, drawn = set(), []
    names = list(DIMENSIONS)
    while len(drawn) < count:
        best, most = None, -1
        for _ in range(200):
            values = [rng.choice(list(DIMENSIONS[n])) for n in names]
            if not possible(dict(zip(names, values))):
                continue
            fresh = sum((i, a, j, b) not in seen for i, a in enumerate(values) for j, b in enumerate(values) if i < j)
            if fresh > most:
                best, most = values, fresh
        seen |= {(i, a, j, b) for i, a in enumerate(best) for j, b in enumerate(best) if i < j}
        settings = dict(SMALL)
        for name, value in zip(names, best):
            settings.update(DIMENSIONS[name][value])
        ranks = settings["launch.nproc"] // settings.get("parallel.tensor", 1) // settings.get("parallel.pipeline", 1)
        settings.setdefault("train.global_batch", 4 * ranks)
        drawn.append((", ".join(best), settings))
    return drawn


def possible(v):
    nvme, away = "nvme" in v["states"] or "mixed" in v["states"], v["states"].split()[-1] in ("host", "nvme", "mixed")
    pipeline = v["mesh"].startswith("pp") or "pp 2" in v["mesh"]
    return not (v["more"] in ("speculate", "image") and not nvme or v["more"] == "speculate" and pipeline
                or v["more"] == "narrow" and not away
                or v["family"] == "gpt2 autograd" and (v["mesh"] not in ("dp 1", "dp 2", "dp 3") or v["recompute"] == "selective"
                                                       or v["dtype"] in ("bf16", "fp16") or "stage 2 nvme" in v["states"]
                                                       or v["states"] in ("stage 3 host", "stage 3 nvme"))
                or v["order"] == "layer" and pipeline
                or v["more"] == "dropout" and v["family"] not in ("gpt2", "gpt2 autograd")
                or v["mesh"] in ("tp 2", "sp 2", "tp 2 pp 2") and v["states"] in ("stage 2 nvme", "stage 3 nvme"))


def train(program, folder, settings, resume=None):
    os.makedirs(folder)
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as out:
        out.writelines(f"line {i} of a text that repeats itself {i % 7} times; " for i in range(1500))
    with open(os.path.join(folder, "run.yaml"), "w", encoding="utf-8") as out:
        out.write("model: {}\n")
    command = [program, "train", "run.yaml", "--resume", resume or "never"]
    for key, value in {**settings, "data.text": "[text.txt]", "output.dir": "run", "offload.nvme_path": "swap"}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, (done.stderr or done.stdout).strip().splitlines()[-1:]


def states_of(folder):
    """Bytes of every saved state: {(checkpoint, file, tensor): bytes}."""
    found = {}
    for at, _, names in os.walk(os.path.join(folder, "run", "checkpoints")):
        for name in sorted(names):
            if not name.endswith(".safetensors"):
                continue
            with open(os.path.join(at, name), "rb") as stream:
                data = stream.read()
            size = struct.unpack("<Q", data[:8])[0]
            for tensor, entry in json.loads(data[8:8 + size]).items():
                if tensor != "__metadata__":
                    begin, end = entry["data_offsets"]
                    found[os.path.basename(at), name, tensor] = data[8 + size + begin:8 + size + end]
    return found


def numbers_of(folder):
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as stream:
        steps = [json.loads(line) for line in stream]
    return [{k: repr(s.get(k)) for k in ("step", "loss", "grad_norm", "lr", "eval_loss", "loss_scale", "skipped")}
            for s in steps]


def run(program, folder, settings, resumed):
    code, last = train(program, os.path.join(folder, "a"), settings)
    if code != 0:
        return code, last, None
    result = [numbers_of(os.path.join(folder, "a")), states_of(os.path.join(folder, "a"))]
    if resumed:
        saved = os.path.join(folder, "a", "run", "checkpoints")
        middle = next(n for n in sorted(os.listdir(saved)) if n.rstrip("/").endswith("3"))
        other = {**settings, "zero.stage": 1, **on("device"), "offload.device_fraction": 0}
        code, last = train(program, os.path.join(folder, "b"), other, resume=os.path.join(saved, middle))
        if code != 0:
            return code, last, None
        result += [numbers_of(os.path.join(folder, "b")), states_of(os.path.join(folder, "b"))]
    return 0, last, result


def compare(name, settings, programs, keep):
    with tempfile.TemporaryDirectory(dir=keep) as scratch:
        ends = []
        for i, program in enumerate(programs):
            folder = os.path.join(scratch, str(i))
            os.makedirs(folder)
            ends.append(run(program, folder, settings, name.endswith("resume")))
            shutil.rmtree(folder, ignore_errors=keep is None)
        (code, last, former), (new_code, new_last, new) = ends
        if code != 0 or new_code != 0:
            if code == new_code == 2:
                return "refused", " ".join(last)
            return "differs", f"exit {code} ({' '.join(last)}) and {new_code} ({' '.join(new_last)})"
        if not former[1]:
            return "differs", "no state was saved"
        if former == new:
            return "equal", f"{len(former[0])} steps, {sum(len(s) for s in former[1::2])} states"
        which = [("numbers", "states")[i % 2] for i, (a, b) in enumerate(zip(former, new)) if a != b]
        return "differs", ", ".join(which)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--only")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    programs = [os.path.abspath(p) for p in arguments.programs]
    counts = {"equal": 0, "differs": 0, "refused": 0}
    for number, (name, settings) in enumerate(draw(2 * arguments.count), 1):
        if counts["equal"] + counts["differs"] >= arguments.count or (arguments.only and arguments.only not in name):
            continue
        result, what = compare(name, settings, programs, arguments.keep)
        counts[result] += 1
        print(f"{number:3} {result:8} {name}: {what}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["differs"] or not counts["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
