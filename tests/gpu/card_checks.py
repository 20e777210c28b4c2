"""Checks of runs_test.py: which card a rank takes that another launcher started, or one on another machine."""
import concurrent.futures
import os
import re
import shlex
import socket
import time

import training
from small_runs import MODELS


def started_ranks(place, name, environment, gpus=1, **settings):
    """Answers of the ranks that another launcher starts with these variables, one dictionary for each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def rank(number):
        env = {"RANK": number, "WORLD_SIZE": len(environment), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment[number]}
        return place.train(f"{name}-{number}", MODELS["gpt2"], {"launch.nproc": 2, "launch.timeout": 10, **settings}, gpus=gpus,
                           variables={key: str(value) for key, value in env.items()})
    with concurrent.futures.ThreadPoolExecutor(len(environment)) as workers:
        return list(workers.map(rank, range(len(environment))))


def check_one_card(place):
    """Two ranks that another launcher put on one card: NCCL's reason reaches the error."""
    answers = started_ranks(place, "one-card", [{"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}] * 2)
    wanted = "failed: group world: NCCL could not be started: .*Last error: Duplicate GPU detected"
    if all(answer.code for answer in answers) and any(re.search(wanted, answer.text) for answer in answers):
        return []
    return [f"exit code {answer.code}:\n{training.tail(answer.text)}" for answer in answers]


def check_own_cards(place):
    """A launcher that shows each rank of a host one card: the rank takes it. Other numbers of cards are refused."""
    # The null NCCL tells the cards of two processes apart only by their hosts.
    own = [{"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "NCCL_HOSTID": f"card-{rank}"} for rank in range(2)]
    found = [f"one card each: exit code {answer.code}:\n{training.tail(answer.text)}"
             for answer in started_ranks(place, "own-card", own) if answer.code]
    few = started_ranks(place, "few-cards", [{"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3} for rank in range(3)], gpus=2)
    wanted = "sees 2 GPUs, and this host has 3 ranks: .*--gpu-bind=none"
    return found + [f"2 cards of 3 ranks: exit code {answer.code}:\n{training.tail(answer.text)}"
                    for answer in few if answer.code != 2 or not re.search(wanted, answer.text)]


def check_other_devices(place):
    """A rank without a GPU beside one with a GPU: both name the cause at once and do not wait for launch.timeout."""
    environment = [{"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}, {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "NULL_GPU_COUNT": 0}]
    began = time.monotonic()
    answers = started_ranks(place, "other-devices", environment, **{"launch.backend": "auto", "launch.timeout": 100})
    found = [f"the ranks ended after {time.monotonic() - began:.0f} s"] if time.monotonic() - began > 60 else []
    wanted = "rank . communicates (over NCCL|without a GPU), and rank . communicates .*: launch.backend must be equal on all ranks"
    return found + [f"exit code {answer.code}, 2 and the cause were expected:\n{training.tail(answer.text)}"
                    for answer in answers if answer.code != 2 or not re.search(wanted, answer.text)]


def check_launcher_elsewhere(place):
    """A launcher without GPUs, on none of the hosts: the ranks run on the host's cards and check their plans against the budgets."""
    (place.folder / "elsewhere-hosts").write_text("elsewhere slots=2\n", encoding="ascii")
    found = []
    for name, budget, code, words in (("elsewhere", "4GiB", 0, "; 2 GPU ranks, ZeRO"),
                                      ("elsewhere-budget", "150MiB", 3, " failed: memory.device: a step needs ")):
        # The stand-in for ssh: this machine, with the null GPUs that the launcher does not see.
        cards = training.null_gpu.environment(place.args.libraries, 2, None, place.folder / name / "report")
        there = [f"{key}={shlex.quote(value)}" for key, value in cards.items() if os.environ.get(key) != value]
        ssh = place.folder / f"{name}-ssh"
        ssh.write_text(f"exec env {' '.join(there)} sh -c \"$2\"\n", encoding="utf-8")
        answer = place.train(name, MODELS["llama"], {"launch.hostfile": str(place.folder / "elsewhere-hosts"), "train.global_batch": 4,
                                                     "train.dtype": "bf16", "memory.device": budget}, gpus=0,
                             variables={"SLUICE_SSH": f"sh {ssh}", "MASTER_ADDR": "127.0.0.1"})
        launched = sum(report["work"]["launches"] > 0 for report in answer.reports)
        if answer.code != code or words not in answer.text or launched != (0 if code else 2):
            found.append(f"{name}: exit code {answer.code}, {launched} ranks launched kernels; {code} and '{words}' were expected:\n"
                         + training.tail(answer.text))
    return found


CARD_CHECKS = (check_one_card, check_own_cards, check_other_devices, check_launcher_elsewhere)
