"""Output of `sluice data clean`, `dedupe` and `prepare` for 1, 2 and 4 threads, and after kill -9 at ten random moments.

    random_kills.py SLUICE FOLDER [MB] [SEED]

FOLDER takes the corpus and the outputs, and is to be removed afterwards. Exits with 1 if a byte differs.
"""

import hashlib
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import corpus_vs_datatrove

KILLS = 10
LINKS = 30  # names of the corpus for `prepare`, which records its state every 256 MiB


def digest(folder):
    """Of all files below the folder, with their names. work.log says in which order units were done."""
    hashed = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "work.log"):
        hashed.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


def seconds_of(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def kill_and_finish(command, folder, whole_s, draw):
    """The kills that met a running command; the last call finishes."""
    kills = 0
    while kills < KILLS:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            try:
                child.wait(draw.uniform(0, whole_s))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                kills += 1
                continue
        shutil.rmtree(folder)  # finished before the kill: from the start
        folder.mkdir()
    seconds_of(command)


def main():
    sluice, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    megabytes = float(sys.argv[3]) if len(sys.argv) > 3 else 32
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    folder.mkdir()
    corpus = folder / "corpus.jsonl"
    texts = list(corpus_vs_datatrove.docstrings())
    shifts = range(1 + int(megabytes * 1e6 / sum(map(len, texts))))
    corpus_vs_datatrove.write_corpus(corpus, (t for s in shifts for t in corpus_vs_datatrove.rotated(texts, s % 26)))
    (folder / "many").mkdir()
    for i in range(LINKS):
        (folder / "many" / f"{i}.jsonl").hardlink_to(corpus)
    commands = {"clean": [str(corpus), "--recipe", "fineweb", "--unit", "4MiB"],
                "dedupe": [str(corpus), "--memory", "16MiB"], "prepare": [str(folder / "many")]}
    different = 0
    for name, options in commands.items():
        digests = {}
        for kind in ("1", "2", "4", "killed"):
            out = folder / name / kind
            out.mkdir(parents=True)
            threads = "2" if kind == "killed" else kind
            command = [sluice, "data", name, *options, "-o", str(out / "out"), "--threads", threads]
            if kind == "killed":
                kill_and_finish(command, out, whole_s, draw)
            else:
                whole_s = seconds_of(command)
            digests[kind] = digest(out)
        equal = len(set(digests.values())) == 1
        different += not equal
        print(f"{name}: {digests['1'][:16]} " + ("from 1, 2 and 4 threads and after ten kills" if equal else str(digests)),
              flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
