"""``make model``: explore every configuration completely, or show what breaks without a rule.

PYTHONPATH=tests python -m model.run                       every configuration, with all rules in force
PYTHONPATH=tests python -m model.run --without RULE        the first trace of each configuration that then breaks
PYTHONPATH=tests python -m model.run --each-without        each rule in turn, in the configuration that shows it
PYTHONPATH=tests python -m model.run --rules               the rules
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from .configurations import configurations
from .engine import Exploration
from .rules import RULES, without
from .states import Configuration, Result

__all__ = ["explore", "main", "shown_by"]


def explore(configuration: Configuration, *, most: int = 0, outcomes: bool = False) -> Result:
    """Explore a configuration; if it breaks with twins, retry without, so that the trace names the right actors."""
    result = Exploration(configuration).explore(most, outcomes=outcomes)
    if result.wrong and configuration.twins:
        result = Exploration(replace(configuration, twins=None)).explore()
    return result


def shown_by(rule: str) -> Configuration:
    """Return the configuration that breaks without a rule."""
    return next(each for each in configurations() if each.name == RULES[rule].shown_by)


def _print(result: Result, *, trace: bool) -> None:
    state = "BROKEN" if result.wrong else "passes" if result.whole else "so far"
    print(
        f"{state} {result.states:>9,} states {result.steps:>10,} steps {result.seconds:>7.1f} s   {result.name}",
        flush=True,
    )
    for name, ended in result.outcomes.items():
        print(f"           {name}: {', '.join(sorted(ended))}")
    if result.wrong:
        print(f"       {result.wrong}")
        for number, line in enumerate(result.trace if trace else (), 1):
            print(f"       {number:3} {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", nargs="*", default=[], metavar="RULE")
    parser.add_argument("--each-without", action="store_true")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--only", default="", help="the name of a configuration")
    parser.add_argument("--most", type=int, default=0, help="so many states of each at most")
    parser.add_argument("--first", action="store_true", help="stop at the first that breaks")
    parser.add_argument("--no-traces", action="store_true")
    parser.add_argument("--outcomes", action="store_true", help="as what each process can end")
    options = parser.parse_args()
    if options.rules:
        for name, rule in RULES.items():
            print(f"{name:28} {rule.says}")
        return 0
    if options.each_without:
        for name in RULES:
            print(f"-- without {name}: {RULES[name].says}", flush=True)
            with without([name]):
                _print(explore(shown_by(name), most=options.most), trace=not options.no_traces)
        return 0
    results = []
    with without(options.without):
        for configuration in configurations():
            if options.only in ("", configuration.name):
                results.append(explore(configuration, most=options.most, outcomes=options.outcomes))
                _print(results[-1], trace=not options.no_traces)
                if results[-1].wrong and options.first:
                    break
    broken = sum(bool(result.wrong) for result in results)
    print(
        f"{sum(result.states for result in results):,} states, {sum(result.steps for result in results):,} steps, "
        f"{broken} of {len(results)} broken, {sum(result.seconds for result in results):.0f} s of processor time"
    )
    return 1 if broken and not options.without else 0


if __name__ == "__main__":
    sys.exit(main())
