#!/usr/bin/env python3
"""Effective values of DeepSpeed's own parser beside those of a migration, and its refusals beside ours.

    deepspeed_oracle.py PROGRAM [--random N] [--seed S]

PROGRAM is sluice_migrate_lines. The configurations: each key alone with each kind of value, batch sizes, unknown keys of each
section, and N random ones with right and wrong values. Ends with 77 (skipped) where deepspeed or torch is not installed, with 1
after a difference.
"""
import argparse
import collections
import enum
import importlib.util
import inspect
import itertools
import json
import logging
import os
import pathlib
import random
import subprocess
import sys

TYPES = ("section", "bool", "int", "float", "text", "choice", "dtype", "list", "texts", "int_or_auto", "object", "any")
WORLDS = (1, 2, 4)
WRONG = (True, False, 1, 0, -1, 2.5, "x", "true", "5", "5.0", "auto", None, [], [1], {}, {"a": 1}, 1e12, "cpu", "nvme", 3)
# Read by the engine or by an optimizer, not by DeepSpeedConfig.
LATER = ("optimizer", "scheduler")


def good_values(row):
    return {
        "bool": [True, False], "int": [1, 2, 8, 5e8, 1000, 16.0], "float": [0.5, 0, 1.0, 1e-3], "text": ["a", "/x"],
        "choice": row["choices"], "dtype": ["fp32", "bf16", "bfloat16", "half", "fp16"], "list": [[0.9, 0.99]],
        "texts": [[choice] for choice in row["choices"]] or [["n"]], "int_or_auto": ["auto", 3], "object": [{}], "any": [1],
        "section": [{}],
    }[TYPES[row["type"]]]  # fmt: skip


def put(settings, path, value):
    *sections, name = path.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
        if not isinstance(settings, dict):
            return
    settings[name] = value


def names_of(row):
    yield row["path"]
    if row["alias"]:
        yield ".".join(row["path"].split(".")[:-1] + [row["alias"]])


def base_of(row):
    """A configuration in which the key has a place."""
    settings = {"train_micro_batch_size_per_gpu": 2}
    section = row["path"].split(".")[0]
    if section in LATER and row["variants"]:
        settings[section] = {"type": row["variants"][0], "params": {}}
    return settings


def each_key(rows):
    for row in rows:
        for name, value, stage in itertools.product(names_of(row), good_values(row), (0, 2, 3)):
            settings = base_of(row)
            if stage:
                settings["zero_optimization"] = {"stage": stage}
            put(settings, name, value)
            yield settings, 2


def batches():
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    for values in itertools.product((None, 0, 1, 8, 12, 24), (None, 1, 2, 3), (None, 1, 2)):
        for world in WORLDS:
            yield {name: value for name, value in zip(names, values) if value is not None}, world


def unknown_keys(rows):
    """(settings, world, path, class): one key that nobody knows."""
    sections = {row["path"]: row["open"] for row in rows
                if TYPES[row["type"]] == "section" and row["class"] != "removed_upstream"}  # fmt: skip
    for section, is_open in [("", False), *sections.items()]:
        if section.split(".")[0] not in LATER:
            path = f"{section}.zzz_unknown" if section else "zzz_unknown"
            settings = {"train_micro_batch_size_per_gpu": 2}
            put(settings, path, 1)
            yield settings, 2, path, "not_needed" if is_open else "ignored_upstream"


def random_settings(draw, rows):
    settings = {}
    for name, values, share in (("train_micro_batch_size_per_gpu", (1, 2, 4), 0.9), ("gradient_accumulation_steps", (1, 2), 0.3),
                                ("train_batch_size", (4, 8, 16, 32), 0.3)):
        if draw.random() < share:
            settings[name] = draw.choice(values)
    if draw.random() < 0.7:
        settings["zero_optimization"] = {"stage": draw.choice((0, 1, 2, 3))}
    for _ in range(draw.randint(0, 8)):
        row = draw.choice(rows)
        if row["class"] == "removed_upstream" and draw.random() < 0.9:
            continue
        if TYPES[row["type"]] == "section":
            if draw.random() < 0.1:
                put(settings, row["path"], draw.choice(({}, None, True, "auto", [], {"zzz": 1})))
            continue
        value = draw.choice(WRONG) if draw.random() < 0.15 else draw.choice(good_values(row))
        put(settings, draw.choice(list(names_of(row))), value)
    return settings, draw.choice(WORLDS)


def flatten(prefix, section, out):
    for name, value in section.items():
        if isinstance(value, dict) and not name.endswith(("arg_mappings", "partition_config", "quantized_initialization",
                                                          "post_init_quant")):  # fmt: skip
            flatten(f"{prefix}{name}.", value, out)
        else:
            out[prefix + name] = value


TOP = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "managed_gradient_accumulation",
       "steps_per_print", "dump_state", "disable_python_gc", "disable_allgather", "prescale_gradients",
       "gradient_predivide_factor", "gradient_allreduce_op", "gradient_clipping", "zero_allow_untested_optimizer",
       "zero_force_ds_cpu_optimizer", "memory_breakdown", "dataloader_drop_last", "log_level")
TENSOR = ("autotp_size", "tp_overlap_comm", "vocab_parallel_lm_head", "vocab_parallel_ce_backend", "preset_model",
          "keep_module_on_host", "replace_with_kernel_inject")
INTERNAL = {"autotuning.start_step", "autotuning.end_step", "autotuning.model_info", "expert_parallel.expert_w3"}


def their_values(config):
    """path -> value of everything that DeepSpeedConfig holds."""
    out = {name: getattr(config, name) for name in TOP}
    out |= {f"tensor_parallel.{name}": getattr(config.tensor_parallel_config, name) for name in TENSOR}
    sections = {
        "zero_optimization": config.zero_config, "fp16": config.float16_config, "bf16": config.bfloat16_config,
        "compile": config.compile_config, "hybrid_engine": config.hybrid_engine, "timers.throughput": config.timers_config,
    }  # fmt: skip
    if config.weight_quantization_config:
        sections["weight_quantization"] = config.weight_quantization_config
    if config.comms_config.comms_logger_enabled:
        sections["comms_logger"] = config.comms_config.comms_logger
    for name, section in sections.items():
        flatten(f"{name}.", section.model_dump(), out)
    monitors = config.monitor_config.model_dump()
    for name in ("tensorboard", "wandb", "csv_monitor", "comet"):
        flatten(f"{name}.", monitors[name], out)
    for name, section in {"aio": config.aio_config, "pipeline": config.pipeline}.items():
        out |= {f"{name}.{key}": value for key, value in section.items()}
    for name in ("activation_checkpointing", "flops_profiler", "expert_parallel", "autotuning"):
        values = vars(getattr(config, f"{name}_config"))
        out |= {f"{name}.{key}": value for key, value in values.items() if not key.startswith("_")}
    out["data_types.grad_accum_dtype"] = config.grad_accum_dtype
    return {path: value for path, value in out.items() if path not in INTERNAL}


def plain(value):
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.lower() if isinstance(value, str) else value


class Comparison:
    def __init__(self, program, parser):
        self.program, self.parser = program, parser
        self.counts, self.faults = collections.Counter(), []

    def ours(self, cases):
        """For each case: the mistakes that DeepSpeed has to refuse, and the report."""
        lines = "".join(f"{world} {self.parser.version} {json.dumps(settings)}\n" for settings, world in cases)
        out = subprocess.run([self.program], input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        assert len(out) == 2 * len(cases), f"{len(out)} lines for {len(cases)} configurations"
        return [(json.loads(out[at]), json.loads(out[at + 1])) for at in range(0, len(out), 2)]

    def fault(self, what, settings):
        self.counts["faults"] += 1
        if len(self.faults) < 40:
            self.faults.append(f"{what}\n    {json.dumps(settings)}")

    def run(self, cases):
        cases = list(cases)
        for (settings, world), (mistakes, report) in zip(cases, self.ours(cases)):
            self.compare(settings, world, mistakes, report)

    def compare(self, settings, world, mistakes, report):
        self.counts["configurations"] += 1
        config, refusal = self.parser.parse(settings, world)
        if refusal and not report["errors"] and not report["missing"]:
            self.fault(f"DeepSpeed refuses, we do not: {refusal}", settings)
        elif refusal:
            self.counts["refused by both"] += 1
        elif mistakes:
            self.counts["refused later by DeepSpeed"] += 1
        else:
            self.counts["accepted by both"] += 1
            self.compare_values(settings, their_values(config), report)

    def compare_values(self, settings, theirs, report):
        ours = report["effective"]
        unknown = {key["path"] for key in report["keys"] if key["class"] == "ignored_upstream"}
        asked = {missing["path"] for missing in report["missing"]}  # "auto", which Hugging Face's Trainer fills
        for path, value in theirs.items():
            if path in asked:
                continue
            if path not in ours:
                if value is not None and path not in unknown:  # DeepSpeed keeps unknown keys of some sections
                    self.fault(f"{path}: {value!r} there, absent here", settings)
                continue
            self.counts["values"] += 1
            mine = ours[path]
            if path == "zero_optimization.overlap_comm" and mine is None:
                continue  # None is stage == 3 there, after the sections are read
            if path == "data_types.grad_accum_dtype" and mine is not None:
                continue  # several names of one type
            if plain(value) != plain(mine):
                self.fault(f"{path}: {value!r} there, {mine!r} here", settings)

    def run_unknown(self, cases):
        cases = list(cases)
        for (settings, world, path, kind), (mistakes, report) in zip(cases, self.ours([case[:2] for case in cases])):
            _, refusal = self.parser.parse(settings, world)
            self.counts["unknown keys"] += 1
            classes = [key["class"] for key in report["keys"] if key["path"] == path]
            if bool(refusal) != bool(mistakes):
                self.fault(f"{path}: there {refusal}, here {mistakes}", settings)
            elif not refusal and classes != [kind]:
                self.fault(f"{path}: DeepSpeed says nothing, class here {classes}", settings)

    def run_defaults(self):
        """Defaults of an optimizer's and a scheduler's parameters, which stand in signatures."""
        for settings, signature in self.parser.signatures():
            settings = {"train_micro_batch_size_per_gpu": 2} | settings
            (section,) = set(settings) & set(LATER)
            (_, report), = self.ours([(settings, 1)])
            for name, parameter in signature.parameters.items():
                mine = report["effective"].get(f"{section}.params.{name}", signature.empty)
                if signature.empty in (parameter.default, mine) or name in settings[section]["params"]:
                    continue
                self.counts["defaults of signatures"] += 1
                if plain(parameter.default) != plain(mine):
                    self.fault(f"{section}.params.{name}: {parameter.default!r} there, {mine!r} here", settings)


class DeepSpeedParser:
    def __init__(self):
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        import deepspeed
        from deepspeed.runtime import config

        logging.disable(logging.CRITICAL)
        self.version = deepspeed.__version__.split("+")[0]
        self.module = config
        config.dist.get_rank = lambda *_: 0

    def signatures(self):
        from deepspeed.ops import adagrad, adam, lion
        from deepspeed.runtime import lr_schedules

        for name, classes in {"AdamW": (adam.FusedAdam, adam.DeepSpeedCPUAdam), "Lion": (lion.FusedLion, lion.DeepSpeedCPULion),
                              "Adagrad": (adagrad.DeepSpeedCPUAdagrad,)}.items():
            for optimizer in classes:
                yield {"optimizer": {"type": name, "params": {}}}, inspect.signature(optimizer)
        for name in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
            params = {} if name == "WarmupLR" else {"total_num_steps": 10}
            yield {"scheduler": {"type": name, "params": params}}, inspect.signature(getattr(lr_schedules, name))

    def parse(self, settings, world):
        """(DeepSpeedConfig, None) or (None, its refusal)."""
        self.module.dist.get_world_size = lambda *_: world
        try:
            return self.module.DeepSpeedConfig(json.loads(json.dumps(settings))), None
        except Exception as refusal:
            return None, f"{type(refusal).__name__}: {' '.join(str(refusal).split())[:200]}"


def main():
    parser = argparse.ArgumentParser(description="DeepSpeed's effective values beside ours.")
    parser.add_argument("program")
    parser.add_argument("--random", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    missing = [name for name in ("torch", "deepspeed") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: needs the package(s) {', '.join(missing)}")
        return 77
    keys = subprocess.run([args.program, "--keys"], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [json.loads(line) for line in keys.splitlines()]
    comparison = Comparison(args.program, DeepSpeedParser())
    draw = random.Random(args.seed)
    comparison.run(each_key(rows))
    comparison.run(batches())
    comparison.run_defaults()
    comparison.run_unknown(unknown_keys(rows))
    comparison.run(random_settings(draw, rows) for _ in range(args.random))
    for name, count in comparison.counts.items():
        print(f"{name}: {count}")
    print(*comparison.faults, sep="\n")
    return 1 if comparison.faults else 0


if __name__ == "__main__":
    sys.exit(main())
