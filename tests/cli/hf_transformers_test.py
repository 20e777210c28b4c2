#!/usr/bin/env python3
"""What `sluice checkpoint export` writes, transformers loads and computes the same with.

Usage: hf_transformers_test.py SLUICE GOLDEN_FOLDER.  Ends with 77 (skipped) where transformers is not
installed; without torch the tokenizers alone are compared.  Every family goes in and out again, and every
logit must come back.  Of models trained here, with each kind of our tokenizers, the folder alone must give our
ids, our loss and our end.
"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import torch
except ImportError as missing:
    print(f"without models: {missing}")
    torch = None

PHRASE = "the quick brown fox jumps over the lazy dog; don't  stop\n\n"
TEXTS = [PHRASE, "zw\u00f6lf \u65e5\u672c\u8a9e 12345\r\n\t x", " \U0001F600 e\u0301 <|endoftext|> it's\u00a0I'LL", "\x00\x7f\x1b"]
RUN = """model: {type: llama, layers: 1, hidden: 32, heads: 2, seq: 64}
data: {text: [text.txt], tokenizer: %s}
train: {steps: 3, micro_batch: 1, eval_steps: 1}
schedule: {type: constant}
launch: {nproc: 1, threads: 1}
checkpoint: {dir: %s}
output: {dir: run-%s}
"""


def run(sluice, scratch, *arguments, text=None):
    return subprocess.run([sluice, *arguments], cwd=scratch, check=True, input=text, stdout=subprocess.PIPE,
                          encoding="utf-8").stdout


def check_tokenizer(sluice, scratch, name, tokenizer):
    (scratch / f"{name}.yaml").write_text(RUN % (tokenizer, name, name))
    run(sluice, scratch, "train", f"{name}.yaml")
    run(sluice, scratch, "checkpoint", "export", name, "-o", f"{name}-hf")
    theirs = transformers.AutoTokenizer.from_pretrained(scratch / f"{name}-hf")
    for text in TEXTS:
        # Where it is written here, an end-of-text in a text is text.
        ids = run(sluice, scratch, "tokenizer", "encode", "--tokenizer", tokenizer, text=text)
        ids = [int(number) for number in ids.split()]
        assert theirs(text)["input_ids"] == ids, f"{name}: {text!r}: {theirs(text)['input_ids']} is not {ids}"
        assert theirs.decode(ids) == text, f"{name}: {theirs.decode(ids)!r} is not {text!r}"
    end = len(theirs) - 1
    config = json.loads((scratch / f"{name}-hf" / "config.json").read_text())
    generation = json.loads((scratch / f"{name}-hf" / "generation_config.json").read_text())
    assert theirs.eos_token_id == config["eos_token_id"] == generation["eos_token_id"] == end, name
    assert theirs.bos_token_id is None and config["bos_token_id"] is None, name
    print(f"{name}: the same ids, end of text {end}")
    if torch is None:
        return
    ours = json.loads(run(sluice, scratch, "eval", f"{name}.yaml", "--checkpoint", name, "--text", "less.txt", "--json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(scratch / f"{name}-hf", dtype=torch.float32).eval()
    ids = theirs((scratch / "less.txt").read_text())["input_ids"] + [end]
    assert len(ids) == ours["tokens"] + 1 <= 65, "one window"
    with torch.no_grad():
        loss = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    loss = -loss[range(len(ids) - 1), ids[1:]].mean().item()
    assert abs(loss - ours["loss"]) < 1e-5, f"{name}: a loss of {loss} is not {ours['loss']}"
    assert model.generation_config.eos_token_id == end, name


def check_tokenizers(sluice, scratch):
    (scratch / "text.txt").write_text(PHRASE * 200)
    (scratch / "less.txt").write_text(PHRASE[:50])
    run(sluice, scratch, "tokenizer", "train", "text.txt", "--vocab-size", "300", "-o", "bpe")
    check_tokenizer(sluice, scratch, "bytes-run", "bytes")
    check_tokenizer(sluice, scratch, "bpe-run", "bpe")
    # cl100k's pattern belongs to a hundred thousand ranks: bytes, some words, and what never comes.
    words = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" q", b"12", b"123", b"st", b"op"]
    words += [b"\xff%d" % number for number in range(100_000 - len(words))]
    lines = [f"{base64.b64encode(word).decode()} {rank}" for rank, word in enumerate(words)]
    (scratch / "ranks.tiktoken").write_text("\n".join(lines) + "\n")
    check_tokenizer(sluice, scratch, "ranks-run", "ranks.tiktoken")


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
    sluice, golden = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute()
    with tempfile.TemporaryDirectory() as scratch:
        check_tokenizers(sluice, pathlib.Path(scratch))
        for family in ("gpt2", "llama", "mistral", "qwen2") if torch else ():
            check(sluice, golden, family, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
