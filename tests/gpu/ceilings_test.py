#!/usr/bin/env python3
"""Planned against reserved device memory, and a step's launches, waits and copies against ceilings that may only fall.

Usage: ceilings_test.py [--all] [--lower] [--only TEXT] [--card CAPABILITY PROCESSORS] [--sluice PROGRAM] [--libraries FOLDER] [--jobs N]

ceilings.json holds the configurations, each with the ceilings of one step in the steady state and the bound of memory.
Without --all only those with "fast" run.  --lower writes figures that fell to ceilings.json, and figures that are missing;
it raises none.  Exit codes: 0; 1 where a figure is above its ceiling; 77 where there is no null GPU.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import tempfile

import channels
import training

TABLE = pathlib.Path(__file__).resolve().parent / "ceilings.json"
STEPS = (2, 4)  # the difference of the two runs is two steps in the steady state
# A run's start multiplies matrices as often as their times ask for, so that two runs' counts could differ.
UNMEASURED = "machine.gemm_rate:nan"
FELL_MUCH = 0.9  # a figure below this share of its ceiling asks for a lower ceiling


def totals(report):
    """A process's sums, by the names of ceilings.json."""
    copies, products = report["copies"], report["products"]
    return {
        "launches": report["work"]["launches"],
        "graph_launches": report["graph_launches"],
        "graph_kernels": sum(report["graph_kernels"].values()),
        "memsets": report["work"]["memsets"],
        "products": report["work"]["products"],
        "host_waits": sum(report["host_waits"].values()),
        "device_copies": copies["device_to_device"]["copies"],
        "host_copies": copies["host_to_device"]["copies"] + copies["device_to_host"]["copies"],
        "device_copied_bytes": copies["device_to_device"]["bytes"],
        "host_copied_bytes": copies["host_to_device"]["bytes"] + copies["device_to_host"]["bytes"],
        "pageable_copies": copies["host_to_device"]["pageable_copies"] + copies["device_to_host"]["pageable_copies"],
        "unaligned_products": sum(p["count"] for p in products if not p["aligned"]),
        "default_stream": sum(report["default_stream"].values()),
    }


def most(answer):
    """The sums of the rank that has most, which differs by stage."""
    ranks = [totals(report) for report in answer.reports]
    return {key: max(rank[key] for rank in ranks) for key in ranks[0]}


def figures_of(short, long):
    """What one step adds: the difference of two runs, in steps."""
    few, many = most(short), most(long)
    return {key: (many[key] - few[key]) / (STEPS[1] - STEPS[0]) for key in many}


class RunFailed(Exception):
    pass


def trained(place, entry, models, steps):
    name = f"{entry['name']}-{steps}".replace(" ", "-").replace(",", "")
    settings = dict(entry["settings"]) | {"train.steps": steps}
    if "talks" in entry:  # conversations of so many tokens
        settings |= place.talks(*entry["talks"])
    if "nvme" in settings.values():
        settings["offload.nvme_path"] = [str(place.folder / name / "swap")]
    ranks = settings.get("launch.nproc", 1)
    answer = place.train(name, models[entry["model"]] | entry.get("model_settings", {}), settings, gpus=ranks,
                         card_bytes=entry.get("card_bytes"), failpoints=UNMEASURED, variables=entry.get("card"))
    faults = [what for report in answer.reports for what in report["faults"]]
    faults += channels.problems(answer.reports) if answer.code == 0 else []
    if answer.code != 0 or faults:
        raise RunFailed(f"exit code {answer.code}, faults {faults}:\n{training.tail(answer.text, 25)}")
    return answer


def memory_of(answer):
    """Of a pipeline: of the rank that is furthest from the plan of its stage."""
    stages = answer.plan.get("stages")
    if stages:
        of_card = {report["contexts"][0]: report["device_peak_bytes"] for report in answer.reports if report["contexts"]}
        pairs = [(stages[card * len(stages) // len(of_card)]["device"], reserved) for card, reserved in of_card.items()]
    else:
        pairs = [(answer.plan["tiers"]["device"]["peak"], max(step["memory"]["device_peak"] for step in answer.steps))]
    planned, reserved = max(pairs, key=lambda pair: abs(pair[1] / pair[0] - 1))
    return {"planned": planned, "reserved": reserved, "percent": 100 * (reserved / planned - 1)}


def measured(place, entry, models):
    """A configuration's figures and memory."""
    # Memory alone takes one run.
    runs = [trained(place, entry, models, steps) for steps in (STEPS if "ceilings" in entry else STEPS[1:])]
    figures = figures_of(*runs) if len(runs) == 2 else {}
    return figures, memory_of(runs[-1])


def complaints(entry, figures, memory):
    """(what is wrong, what may be lowered)."""
    wrong, lower = [], []
    if abs(memory["percent"]) > entry["memory_percent"]:
        wrong.append(f"memory: planned {memory['planned'] / 2**30:.2f} GiB, reserved {memory['reserved'] / 2**30:.2f} "
                     f"({memory['percent']:+.2f} %, the bound is {entry['memory_percent']} %)")
    for key, figure in figures.items():
        ceiling = entry["ceilings"].get(key)
        if ceiling is None:
            wrong.append(f"{key}: {figure:g} a step has no ceiling; --lower writes it")
        elif figure > ceiling:
            wrong.append(f"{key}: {figure:g} a step, the ceiling is {ceiling:g}")
        elif figure < FELL_MUCH * ceiling:
            lower.append(f"{key}: {figure:g} a step is far below the ceiling of {ceiling:g}; lower it (--lower)")
    return wrong, lower


def lower_ceilings(entry, figures):
    for key, figure in figures.items():
        figure = int(figure) if figure == int(figure) else figure
        entry["ceilings"][key] = min(figure, entry["ceilings"].get(key, figure))


def written(table):
    """A line a model and configuration."""
    lines = ['{"models": {']
    lines.append(",\n".join(f"  {json.dumps(name)}: {json.dumps(model)}" for name, model in table["models"].items()))
    lines.append(' },\n "configurations": [')
    lines.append(",\n".join(f"  {json.dumps(entry)}" for entry in table["configurations"]))
    return "\n".join([*lines, " ]\n}\n"])


def measure_all(args, table, entries):
    """(entry, figures, memory, error) of each."""
    def one(place, entry):
        try:
            return (entry, *measured(place, entry, table["models"]), "")
        except RunFailed as failed:
            return entry, {}, {}, str(failed)

    with tempfile.TemporaryDirectory(prefix="sluice-ceilings-") as folder:
        place = training.Place(args, folder)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as workers:
            yield from workers.map(lambda entry: one(place, entry), entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser)
    parser.add_argument("--all", action="store_true", help="every configuration")
    parser.add_argument("--lower", action="store_true", help="write lower and missing ceilings to ceilings.json")
    parser.add_argument("--card", nargs=2, metavar=("CAPABILITY", "PROCESSORS"),
                        help="memory alone, on a card of this compute capability (times ten) with so many multiprocessors")
    parser.add_argument("--only", default="", help="configurations whose name has this in it")
    args = training.parse(parser)
    table = json.loads(TABLE.read_text(encoding="ascii"))
    entries = [e for e in table["configurations"] if args.only in e["name"] and (args.all or e.get("fast") or args.only)]
    if args.card:  # memory alone
        card = dict(zip(("NULL_GPU_CAPABILITY", "NULL_GPU_MULTIPROCESSORS"), args.card, strict=True))
        entries = [{key: value for key, value in entry.items() if key != "ceilings"} | {"card": card} for entry in entries]
    bad = 0
    for entry, figures, memory, error in measure_all(args, table, entries):
        wrong, lower = ([error], []) if error else complaints(entry, figures, memory)
        if args.lower and not error:
            lower_ceilings(entry, figures)
        if memory:
            print(f"{entry['name']}: planned {memory['planned'] / 2**30:.2f} GiB, reserved {memory['reserved'] / 2**30:.2f} "
                  f"({memory['percent']:+.2f} %);", ", ".join(f"{key} {figure:g}" for key, figure in figures.items()))
        print(*(f"  FAILED {text}" for text in wrong), *(f"  note: {text}" for text in lower), sep="\n", end="", flush=True)
        print("\n" if wrong or lower else "", end="")
        bad += bool(wrong)
    if args.lower:
        TABLE.write_text(written(table), encoding="ascii")
    print(f"{len(entries) - bad} of {len(entries)} within their ceilings")
    return 1 if bad or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
