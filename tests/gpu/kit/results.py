"""What the steps of run_kit.py say of their runs, and how runs are compared."""
import concurrent.futures
import contextlib
import shutil
import statistics

from programs import EMULATED, NORMS, PRICED, Failed, TooLarge, differences

CARD_TFLOPS = 989  # dense bf16 of an H100 SXM


def note(text):
    """A result: printed to the step's log, and shown at the end of the step."""
    print("=>", text)


@contextlib.contextmanager
def if_it_fits():
    """What a machine is too small for is noted, and is no failure."""
    try:
        yield
    except TooLarge as large:
        note(large)


def same(kit, run, oracle, tolerance):
    loss, norm = differences(kit.steps(run), kit.steps(oracle))
    note(f"{run} against {oracle}: losses differ by {loss:.1e}, norms by {norm:.1e} (limit {tolerance:.0e})")
    if loss > tolerance or norm > NORMS * tolerance:
        raise Failed(f"{run} and {oracle} differ")


def trained_and_same(kit, runs, comparisons):
    """Trains `runs` (name: function), --jobs at a time, and then compares (run, oracle, tolerance). One failure does not stop the others.
    With --only, just the comparisons of its runs."""
    comparisons = [comparison for comparison in comparisons if kit.wants(comparison[0])]
    needed = {run for run, *_ in comparisons} | {oracle for _, oracle, _ in comparisons}
    runs = {run: train for run, train in runs.items() if run in needed}
    with concurrent.futures.ThreadPoolExecutor(kit.jobs) as pool:
        ends = {name: pool.submit(train) for name, train in runs.items()}
    failures = {name: end.exception() for name, end in ends.items() if end.exception()}
    for run, oracle, tolerance in comparisons:
        if run not in failures and oracle not in failures:
            try:
                same(kit, run, oracle, tolerance)
            except Failed as failed:
                failures[f"{run} against {oracle}"] = failed
    end_with(failures)


def end_with(failures):
    for name, failure in failures.items():
        note(f"{name} FAILED: {failure if isinstance(failure, Failed) else repr(failure)}")
    if failures:
        raise Failed(", ".join(failures))


def reserved_and_planned(kit, run):
    """Bytes of device memory at the peak of the run, and of its plan."""
    reserved, planned = max(s["memory"]["device_peak"] for s in kit.steps(run)), kit.planned(run)
    return reserved, planned, f"planned {planned / 2**30:.2f} GiB, reserved {reserved / 2**30:.2f}, {100 * (reserved / planned - 1):+.1f} %"


def speed_of(kit, run, after=3):
    """Tokens a second: the median of the steps after the third (eager, recorded, first launch), or a later one."""
    steps = kit.steps(run)[after:]
    ms, tokens, tflops = (statistics.median(s[key] for s in steps) for key in ("step_ms", "tokens_per_s", "tflops"))
    memory = reserved_and_planned(kit, run)[2] if kit.backend != "gloo" else ""
    note(f"{run}: {ms:.1f} ms, {tokens:.0f} tokens/s, {tflops:.1f} TFLOP/s, {100 * tflops / CARD_TFLOPS:.1f} % of an H100's {CARD_TFLOPS}; {memory}")
    return tokens


def priced(kit):
    """PRICED, without fp8 where the card's compute capability is below 8.9."""
    if EMULATED:  # cuDNN's attention is not computed
        return {name: settings for name, settings in PRICED.items() if name != "cudnn"}
    smi = shutil.which("nvidia-smi")
    if smi and kit.backend != "gloo":
        capability = kit.call([smi, "--query-gpu=compute_cap", "--format=csv,noheader"]).split()[0]
        if float(capability) < 8.9:
            note(f"compute capability {capability}: no fp8")
            return {name: settings for name, settings in PRICED.items() if name != "fp8"}
    return PRICED
