"""What a step loses to a checkpoint, written at once and behind the steps: `checkpoint.async` false and true, in turns.

    python tests/perf/checkpoint_stall.py                           # configs/bench/gpt2-45m.yaml, 5 rounds of 13 steps
    python tests/perf/checkpoint_stall.py --config FILE --rounds 3 --steps 13 --every 4 --program build/release/runtime/cli/sluice

Every round trains both ways from the start, each in an empty folder. Of rank 0's metrics.jsonl:
  stall    checkpoint_ms: how long the steps were held by a save (the first of a run is left out: it takes the copy's memory);
  behind   the step after a save, in which the writing goes on where it is written behind;
  quiet    the steps that are neither the first nor behind a save;
  lost     stall + behind - quiet: what a save costs in all.
The save after the last step is always written at once and does not count. Prints a line of JSON for each way, medians over
all saves, and the ratio of stalls. Losses of both ways must be the same bits. Exit codes: 0; 1 where a run fails or they differ.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def train(arguments, behind, folder):
    """Records of one run, by step."""
    command = [arguments.program, "train", arguments.config]
    for setting in (
        f"train.steps={arguments.steps}",
        f"output.dir={folder}/run",
        f"data.cache_dir={arguments.cache}",
        f"checkpoint.every={arguments.every}",
        "checkpoint.keep=1",
        f"checkpoint.async={'true' if behind else 'false'}",
        *arguments.set,
    ):
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"checkpoint_stall: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    lines = (pathlib.Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {record["step"]: record for record in records if "step_ms" in record}


def measure(records, every):
    """Stalls, steps behind a save, and the others, in ms."""
    last = max(records)
    stalls, behind, quiet = [], [], []
    for step, record in sorted(records.items()):
        after_save = (step - 1) % every == 0 and step > 1
        if after_save and step - 1 > every and step - 1 < last:
            stalls.append(record["checkpoint_ms"])
            behind.append(record["step_ms"])
        elif not after_save and step > 2:
            quiet.append(record["step_ms"])
    return stalls, behind, quiet


def report(way, stalls, behind, quiet):
    rest = statistics.median(quiet)
    lost = [stall + step - rest for stall, step in zip(stalls, behind)]
    line = {"way": way, "saves": len(stalls), "load": round(os.getloadavg()[0], 1)}
    for name, values in (("stall_ms", stalls), ("behind_ms", behind), ("quiet_ms", quiet), ("lost_ms", lost)):
        line[name] = round(statistics.median(values), 1)
        line[name.replace("_ms", "_range")] = [round(min(values), 1), round(max(values), 1)]
    print(json.dumps(line), flush=True)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/bench/gpt2-45m.yaml")
    parser.add_argument("--program", default="./sluice")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], help="key=value, as of sluice train")
    arguments = parser.parse_args()
    if arguments.every < 2 or arguments.steps < 2 * arguments.every + 1:
        parser.error("--every is 2 at least, and --steps more than twice that")
    found = {False: ([], [], []), True: ([], [], [])}
    (ROOT / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpoint-stall-", dir=ROOT / "runs") as scratch:
        arguments.cache = f"{scratch}/tokens"
        losses = {}
        for number in range(arguments.rounds):
            for behind in (False, True) if number % 2 == 0 else (True, False):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    records = train(arguments, behind, folder)
                for into, values in zip(found[behind], measure(records, arguments.every)):
                    into += values
                losses.setdefault(behind, [record["loss"] for _, record in sorted(records.items())])
    at_once = report("at once", *found[False])
    written_behind = report("behind", *found[True])
    print(json.dumps({"stall_ratio": round(written_behind["stall_ms"] / at_once["stall_ms"], 3),
                      "lost_ratio": round(written_behind["lost_ms"] / at_once["lost_ms"], 3),
                      "losses_equal": losses[False] == losses[True]}))
    return 0 if losses[False] == losses[True] else 1


if __name__ == "__main__":
    sys.exit(main())
