"""Throughput and memory of `sluice data clean` and `sluice data dedupe`, beside datatrove and ftfy.

    corpus_vs_datatrove.py SLUICE FOLDER [MB]

FOLDER takes the corpus, MB megabytes of docstrings from the Python packages of this machine, and is
to be removed afterwards. datatrove 0.10 needs xxhash below 3.6, spacy and tokenizers. Each line: a command, seconds, seconds of a core, MB/s a core, peak resident memory, documents kept.
One thread and one process on both sides. Peers that this python3 lacks are left out.
"""

import ast
import json
import os
import pathlib
import shutil
import string
import subprocess
import sys
import sysconfig

FILTERS = ["gopher_repetition", "gopher_quality", "c4:end_punctuation=off", "fineweb"]
COPIES = 8


def docstrings():
    """Docstrings of a module, joined: prose and code."""
    folders = {sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], "/usr/lib/python3"}
    for path in sorted(p for f in folders for p in pathlib.Path(f).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts = [ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, kinds)]
        text = "\n\n".join(t for t in texts if t)
        if len(text) > 500:
            yield text


def rotated(texts, shift):
    """The texts in another alphabet: other words of the same lengths."""
    lower, upper = string.ascii_lowercase, string.ascii_uppercase
    table = str.maketrans(lower + upper, lower[shift:] + lower[:shift] + upper[shift:] + upper[:shift])
    return (text.translate(table) for text in texts)


def write_corpus(path, texts):
    with open(path, "w", encoding="utf-8") as out:
        for i, text in enumerate(texts):
            out.write(json.dumps({"id": str(i), "text": text}) + "\n")


# A small process starts the command: a child's peak counts the memory of its parent before exec.
WRAPPER = """
import os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(status, time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def measured(name, command, megabytes, kept):
    out = subprocess.run([sys.executable, "-S", "-c", WRAPPER, *command], capture_output=True, check=True)
    status, seconds, cpu, peak = map(float, out.stdout.split())
    if status != 0:
        print(f"{name:<34} failed; is the package there?", flush=True)
        return
    print(f"{name:<34}{seconds:7.1f} s {cpu:7.1f} s of a core {megabytes / cpu:8.2f} MB/s a core "
          f"{peak:6.0f} MiB {kept():8} kept", flush=True)


def run_peer(kind, source, out):
    """In a process of its own: the same steps by a peer."""
    if kind == "ftfy":
        import ftfy
        os.makedirs(out)
        with open(source, encoding="utf-8") as lines, open(out + "/0.jsonl", "w", encoding="utf-8") as to:
            for line in lines:
                record = json.loads(line)
                record["text"] = ftfy.fix_text(record["text"])
                to.write(json.dumps(record) + "\n")
        return
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    def run(*steps):
        LocalPipelineExecutor(pipeline=list(steps), tasks=1, workers=1, logging_dir=None).run()

    reader = lambda: JsonlReader(os.path.dirname(source), glob_pattern=os.path.basename(source))
    writer = lambda: JsonlWriter(out, output_filename="${rank}.jsonl", compression=None)
    if kind == "clean":
        from datatrove.pipeline import filters
        run(reader(), filters.GopherRepetitionFilter(), filters.GopherQualityFilter(),
            filters.C4QualityFilter(filter_no_terminal_punct=False), filters.FineWebQualityFilter(), writer())
    else:
        from datatrove.pipeline import dedup
        run(reader(), dedup.MinhashDedupSignature(out + "/signatures"))
        for bucket in range(14):
            LocalPipelineExecutor(pipeline=[dedup.MinhashDedupBuckets(out + "/signatures", out + "/buckets")],
                                  tasks=14, local_rank_offset=bucket, local_tasks=1, logging_dir=None).run()
        run(dedup.MinhashDedupCluster(out + "/buckets", out + "/remove"))
        run(reader(), dedup.MinhashDedupFilter(out + "/remove"), writer())


def main():
    if sys.argv[1] == "--peer":
        return run_peer(*sys.argv[2:])
    program, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    size = int(sys.argv[3] if len(sys.argv) > 3 else 16) * 1_000_000
    os.makedirs(folder, exist_ok=True)
    texts, total = [], 0
    for text in docstrings():
        texts.append(text)
        total += len(text)
        if total >= size:
            break
    once, many = f"{folder}/once.jsonl", f"{folder}/many.jsonl"
    write_corpus(once, texts)
    write_corpus(many, (t for shift in range(COPIES) for t in rotated(texts, shift)))
    out = f"{folder}/out"

    def lines(where):
        return sum(p.read_bytes().count(b"\n") for p in pathlib.Path(where).glob("*.jsonl"))

    def measure(name, command, source, where="/kept"):
        shutil.rmtree(out, ignore_errors=True)
        measured(name, command, os.path.getsize(source) / 1e6, lambda: lines(out + where))

    def sluice(source, *options):
        return [program, "data", *options, source, "-o", out, "--threads", "1"]

    def peer(kind, source):
        return [sys.executable, __file__, "--peer", kind, source, out]

    filters = [part for name in FILTERS for part in ("--filter", name)]
    print(f"{total / 1e6:.1f} MB of text, {len(texts)} documents; many: {COPIES} times that", flush=True)
    for name, source in (("once", once), ("many", many)):
        measure(f"clean, four filters, {name}", sluice(source, "clean", *filters), source)
        measure(f"clean, repair, {name}", sluice(source, "clean", "--filter", "repair"), source)
        measure(f"dedupe, {name}", sluice(source, "dedupe", "--memory", "16MiB"), source)
    measure("datatrove, four filters, once", peer("clean", once), once, "")
    measure("datatrove, dedupe, once", peer("dedupe", once), once, "")
    measure("ftfy, once", peer("ftfy", once), once, "")


if __name__ == "__main__":
    main()
