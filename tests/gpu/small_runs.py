"""What the tests of small runs on the null GPU share: models, meshes, and what is wrong with a run."""
import math

import channels
import training

MODELS = {
    "gpt2": {"type": "gpt2", "layers": 3, "hidden": 64, "heads": 4, "vocab": 320, "seq": 64},
    "gpt2 with dropout": {"type": "gpt2", "layers": 3, "hidden": 64, "heads": 4, "vocab": 320, "seq": 64, "dropout": 0.1},
    "llama": {"type": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64},
    "mistral": {"type": "mistral", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64,
                "sliding_window": 16},
    "qwen2": {"type": "qwen2", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 320, "seq": 64},
}
TENSOR = {"parallel.tensor": 2}
SEQUENCE = TENSOR | {"parallel.sequence": True}
STAGES = {"parallel.pipeline": 2}
# Ranks, data-parallel ranks, and the keys of the mesh.
PIPELINE_MESHES = {"two stages": (2, 1, STAGES), "four stages": (4, 1, {"parallel.pipeline": 4}),
                   "two stages, two data ranks": (4, 2, STAGES), "two stages, sequence 2": (4, 1, STAGES | SEQUENCE)}
MESHES = PIPELINE_MESHES | {"one rank": (1, 1, {}), "two data ranks": (2, 2, {}), "tensor 2": (2, 1, TENSOR), "sequence 2": (2, 1, SEQUENCE),
          "tensor 2, two data ranks": (4, 2, TENSOR), "sequence 2, two data ranks": (4, 2, SEQUENCE)}
STEPS = 3  # the second has the first one's deferred updates, the third is like it


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
        found += [f"cuBLAS may round parts of {report['rounded_sums']} products' sums to 16 bits"] * (report["rounded_sums"] > 0)
        found += [f"{count} {kind} on the default stream" for kind, count in report["default_stream"].items() if count]
    contexts = sorted(report["contexts"] for report in answer.reports if report["contexts"])
    if contexts != [[card] for card in range(ranks)]:
        found.append(f"processes have contexts on the cards {contexts}, each rank is to have one on its own card")
    if len(answer.steps) != steps:
        found.append(f"{len(answer.steps)} steps in metrics.jsonl, {steps} were asked for")
    found += [f"step {s['step']}: loss {s['loss']}" for s in answer.steps if not math.isfinite(s["loss"])]
    if ranks > 1 and not all(r["work"]["messages"] for r in working):
        found.append("a rank sent no NCCL message")
    return found + channels.problems(working)
