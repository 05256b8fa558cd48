"""How often rules for keep-or-revert are wrong, and what they cost, on launches that are drawn: `python verdicts.py`.

Beside the campaign's rule, which uses all launches of the baseline, and the same test in pairs: "strictly better" in a
single run each, five pairs and a t-test, and a t-test after every pair from the third on ("peeking"). Every figure is the
mean over seeds, with the standard deviation between seeds behind it. False keeps are keeps of a change that does nothing;
power is how often a change of the minimum effect is kept. Launches made for a verdict count as half a pair each, those of a
baseline that were there before do not.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scipy.stats import ttest_1samp

from optagent.agent.noise import Noise, noise_of
from optagent.agent.series import Made, series_of
from optagent.agent.verdict import Verdict, judge, judge_series

MIN_EFFECT, MAX_PAIRS = 0.02, 12
CALIBRATION = 12
"""Launches of the baseline by which the rule knows the noise."""
POOL = 6
SEEDS, DRAWS = 20, 500
LAUNCH_SDS = (0.5, 1.0, 2.0, 3.0)
DRIFT_SD = 0.5
"""Per cent, of one step of the random walk that the machine takes between two launches."""
EXPECTED_PAIRS = {0.5: (2.1, 2.1), 1.0: (3.4, 3.9), 2.0: (7.6, 8.4), 3.0: (10.0, 10.5)}
"""Mean pairs of a change that does nothing and of one of the minimum effect, for Wald's test with the noise estimated
from ten to twelve degrees of freedom (20,000 draws, no drift): what the rule is held against."""


@dataclass
class Machine:
    """Launches vary by `launch_sd` per cent around a level that drifts."""

    launch_sd: float
    drift_sd: float
    draw: random.Random
    level: float = 0.0

    def launch(self, effect: float = 0.0) -> float:
        self.level += self.draw.gauss(0.0, self.drift_sd)
        return 100.0 * (1 + effect) * math.exp((self.level + self.draw.gauss(0.0, self.launch_sd)) / 100)

    def pair(self, effect: float) -> tuple[float, float]:
        """(baseline, candidate), launched in drawn order."""
        if self.draw.random() < 0.5:
            baseline = self.launch()
            return baseline, self.launch(effect)
        candidate = self.launch(effect)
        return self.launch(), candidate


Rule = Callable[[Machine, float], tuple[bool, float]]
"""Whether the change was kept, and after how many pairs."""


def campaign_rule(machine: Machine, effect: float) -> tuple[bool, float]:
    noise = noise_of([machine.launch() for _ in range(CALIBRATION)])
    return sequential(machine, effect, noise)


def against_a_pool(machine: Machine, effect: float) -> tuple[bool, float]:
    """Noise known from six earlier launches, and six launches of the baseline in this sitting."""
    earlier = noise_of([machine.launch() for _ in range(CALIBRATION - POOL)])
    return in_series(machine, effect, [machine.launch() for _ in range(POOL)], earlier)


def first_change(machine: Machine, effect: float) -> tuple[bool, float]:
    """The first change of a campaign: two launches of the baseline are all there is."""
    return in_series(machine, effect, [machine.launch() for _ in range(2)], None)


def in_series(machine: Machine, effect: float, base: list[float], noise: Noise | None) -> tuple[bool, float]:
    """As an experiment goes: the arm comes next that tells more."""
    at, counts, before = len(base), [len(base), 0], len(base)
    series = series_of([Made(n, False, 100 * math.log(v)) for n, v in enumerate(base, 1)], noise)
    while True:
        at += 1
        changed = not counts[1] or series.prefers_changed(at)
        series = series.and_then(Made(at, changed, 100 * math.log(machine.launch(effect if changed else 0.0))))
        counts[changed] += 1
        found = judge_series(
            series, (counts[0], counts[1], counts[1]), min_effect=MIN_EFFECT, max_launches=MAX_PAIRS
        ).verdict
        if found not in (Verdict.MORE, Verdict.TOO_NOISY) or counts[1] == MAX_PAIRS:
            return found is Verdict.KEEP, (sum(counts) - before) / 2


def campaign_rule_uncalibrated(machine: Machine, effect: float) -> tuple[bool, float]:
    return sequential(machine, effect, None)


def sequential(machine: Machine, effect: float, noise: Noise | None) -> tuple[bool, float]:
    pairs: list[tuple[float, float]] = []
    while True:
        pairs.append(machine.pair(effect))
        found = judge(pairs, noise, direction="max", min_effect=MIN_EFFECT, max_pairs=MAX_PAIRS).verdict
        if found not in (Verdict.MORE, Verdict.TOO_NOISY) or len(pairs) == MAX_PAIRS:
            return found is Verdict.KEEP, len(pairs)


def strictly_better(machine: Machine, effect: float) -> tuple[bool, float]:
    baseline, candidate = machine.pair(effect)
    return candidate > baseline, 1


def five_pairs(machine: Machine, effect: float) -> tuple[bool, float]:
    return significant([gain(machine, effect) for _ in range(5)]), 5


def peeking(machine: Machine, effect: float) -> tuple[bool, float]:
    gains = [gain(machine, effect) for _ in range(2)]
    while len(gains) < MAX_PAIRS:
        gains.append(gain(machine, effect))
        if significant(gains):
            return True, len(gains)
    return False, MAX_PAIRS


def gain(machine: Machine, effect: float) -> float:
    baseline, candidate = machine.pair(effect)
    return math.log(candidate / baseline)


def significant(gains: list[float]) -> bool:
    return bool(ttest_1samp(gains, 0.0, alternative="greater").pvalue < 0.05)


RULES: dict[str, Rule] = {
    "campaign's rule": against_a_pool,
    "  its first change": first_change,
    "in pairs, noise known": campaign_rule,
    "in pairs, it is not": campaign_rule_uncalibrated,
    "strictly better": strictly_better,
    "five pairs, t-test": five_pairs,
    "peeking t-test": peeking,
}


def shares(
    rule: Rule, launch_sd: float, drift_sd: float, effect: float, seeds: int, draws: int
) -> Iterator[tuple[float, float]]:
    """(share kept, mean pairs) of each seed."""
    for seed in range(seeds):
        draw = random.Random(f"{seed}:{launch_sd}:{drift_sd}:{effect}")
        done = [rule(Machine(launch_sd, drift_sd, draw), effect) for _ in range(draws)]
        yield sum(kept for kept, _ in done) / draws, sum(pairs for _, pairs in done) / draws


def figure(values: list[float], percent: bool) -> str:
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    return f"{mean:6.1%} ±{spread:.1%}" if percent else f"{mean:5.1f} ±{spread:.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--draws", type=int, default=DRAWS, help="changes tried for each figure and seed")
    asked = options.parse_args()
    for drift_sd in (0.0, DRIFT_SD):
        for launch_sd in LAUNCH_SDS:
            expected = EXPECTED_PAIRS[launch_sd]
            print(
                f"\nlaunches vary by {launch_sd} %, drift {drift_sd} % a launch; expected pairs {expected[0]} and {expected[1]}"
            )
            print(f"{'':<24}{'false keeps':>14}{'power':>14}{'pairs, nothing':>17}{'pairs, +2 %':>15}")
            for name, rule in RULES.items():
                null = list(shares(rule, launch_sd, drift_sd, 0.0, asked.seeds, asked.draws))
                real = list(shares(rule, launch_sd, drift_sd, MIN_EFFECT, asked.seeds, asked.draws))
                print(
                    f"{name:<24}{figure([k for k, _ in null], True):>14}{figure([k for k, _ in real], True):>14}"
                    f"{figure([n for _, n in null], False):>17}{figure([n for _, n in real], False):>15}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
