"""Covering arrays: few combinations of settings in which any two (or three) values of different settings meet."""
import itertools
import random

TRIES = 30  # random candidates for each combination


def _meetings(combination, strength):
    """The sets of `strength` values that meet in a combination."""
    return set(itertools.combinations(sorted(combination.items()), strength))


def _random_combination(settings, is_valid, dice):
    """A valid combination, or None."""
    for _ in range(TRIES):
        combination = {name: dice.choice(values) for name, values in settings.items()}
        if is_valid(combination):
            return combination
    return None


def covering(settings, is_valid, strength=2, seed=1):
    """Combinations (dicts) in which every `strength` values meet that can meet in a valid one.

    `settings`: values by name.  Greedy over random candidates: what no candidate of TRIES x TRIES shows counts as impossible.
    """
    dice = random.Random(seed)
    missing = set()
    for names in itertools.combinations(sorted(settings), strength):
        for values in itertools.product(*(settings[name] for name in names)):
            missing.add(tuple(zip(names, values)))
    chosen = []
    while missing:
        wanted = dict(min(missing, key=repr))
        fixed = {name: [wanted[name]] if name in wanted else values for name, values in settings.items()}
        candidates = [c for c in (_random_combination(fixed, is_valid, dice) for _ in range(TRIES)) if c]
        if not candidates:
            missing.discard(tuple(sorted(wanted.items())))
            continue
        best = max(candidates, key=lambda c: len(_meetings(c, strength) & missing))
        missing -= _meetings(best, strength)
        chosen.append(best)
    return chosen


def grid_checks(grids, is_valid, meet, check):
    """(name, function without arguments) of each combination of {grid: settings} such that any `meet` values meet."""
    for grid, settings in grids.items():
        for number, combination in enumerate(covering(settings, is_valid, meet)):
            text = " ".join(str(value) for value in combination.values())
            yield f"{grid} {number}: {text}", lambda n=f"{grid}-{number}", c=combination: check(n, c)
