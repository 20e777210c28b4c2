#!/usr/bin/env python3
"""What `sluice checkpoint export` writes, transformers loads and computes the same with.

Usage: hf_transformers_test.py SLUICE GOLDEN_FOLDER.  Ends with 77 (skipped) where torch and transformers
are not installed.  Every family goes in and out again, and every logit must come back.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def check(sluice, golden, family, scratch):
    ours, out = scratch / f"{family}-ours", scratch / f"{family}-out"
    subprocess.run([sluice, "checkpoint", "import", golden / family, "-o", ours], check=True)
    subprocess.run([sluice, "checkpoint", "export", ours, "-o", out, "--shard-bytes", "8000"], check=True)
    assert (out / "model.safetensors.index.json").exists(), "more than one shard"
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{family}: {kind}: {info[kind]}"
    expected = json.loads((golden / family / "logits.json").read_text())
    with torch.no_grad():
        logits = model.eval()(torch.tensor([expected["tokens"]])).logits[0]
    worst = (logits - torch.tensor(expected["logits"])).abs().max().item()
    assert worst < 1e-5, f"{family}: a logit is off by {worst}"
    assert model.config.eos_token_id == json.loads((golden / family / "config.json").read_text())["eos_token_id"]
    print(f"{family}: largest difference of a logit {worst:.2g}")


def main():
    sluice, golden = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        for family in ("gpt2", "llama", "mistral", "qwen2"):
            check(sluice, golden, family, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
