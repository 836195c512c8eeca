"""The protocol is correct in every configuration, and each of its rules is needed in at least one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from . import run
from .configurations import configurations
from .engine import Exploration
from .objects import Data, Name, Store, Torn
from .rules import RULES, on, without
from .store import Link, Sync, Unlink, after_a_power_cut, change

PAGE = Path(__file__).parents[2] / "docs" / "protocol-rules.md"
CONFIGURATIONS = {each.name: each for each in configurations()}

# Configurations with more states are explored completely only by `make model`.
MOST = 5_000
# This many states suffice to show that each rule is needed.
MOST_WITHOUT = 70_000


@pytest.mark.slow(but=["log-used-twice", "folder-ender", "repeats"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_reaches_no_forbidden_state(name: str) -> None:
    result = run.explore(CONFIGURATIONS[name], most=MOST)
    assert result.wrong == "", "\n".join(result.trace)
    assert result.whole or result.states >= MOST


@pytest.mark.slow(but=["[fence]", "adopt-in-end", "settle-turn", "whole-look", "sync-before-end"])
@pytest.mark.parametrize("rule", RULES)
def test_configuration_breaks_without_its_rule(rule: str) -> None:
    with without([rule]):
        result = run.explore(run.shown_by(rule), most=MOST_WITHOUT)
    assert result.wrong
    assert result.trace
    assert on(rule)


@pytest.mark.slow(but=["second-attempt", "folder-follower", "sidecars", "two-fixed"])
@pytest.mark.parametrize(
    ("name", "actor", "outcomes"),
    [
        ("second-attempt", "A", {"ended", "lost", "nothing", "won"}),
        ("folder-follower", "f", {"given ", "given a", "given a b"}),
        ("sidecars", "W", {"closed", "ended", "refused"}),
        ("two-fixed", "F", {"closed", "gave up", "told"}),
        ("waits-behind-a-fence", "W", {"closed", "ended", "refused", "stopped"}),
    ],
)
def test_exploration_reaches_every_outcome_of_actor(name: str, actor: str, outcomes: set[str]) -> None:
    """Otherwise the other tests could pass merely because no actor makes progress."""
    assert run.explore(CONFIGURATIONS[name], outcomes=True).outcomes[actor] == outcomes


def test_folding_mirrored_states_does_not_change_verdict() -> None:
    twins = CONFIGURATIONS["source"]
    whole = Exploration(replace(twins, twins=None, late=0)).explore()
    folded = Exploration(replace(twins, late=0)).explore()
    assert whole.wrong == folded.wrong == ""
    assert folded.states < whole.states * 0.6
    with without(["source-turn"]):
        assert all(Exploration(replace(twins, twins=each)).explore().wrong for each in (twins.twins, None))


def test_trace_is_shortest_path_to_error() -> None:
    with without(["list-before-entry"]):
        result = run.explore(CONFIGURATIONS["long-lists"])
    assert [line.partition(":")[0] for line in result.trace] == ["W", "W", "W", "W"]
    assert "flush" in result.trace[2]
    assert "entry(commit" in result.trace[3]


def test_unknown_rule_is_rejected() -> None:
    with pytest.raises(ValueError, match="not rules of the model: gravity"), without(["gravity"]):
        pass


def test_power_cut_keeps_any_subset_of_unsynced_changes() -> None:
    entry, shard = Name("entry", "W", 1), Name("shard", "W", 0)
    store: Store = {shard: Data(("old",))}
    store, _ = change(store, Link(entry, Data(("a",)), content_is_synced=True))
    store, _ = change(store, Unlink(shard))
    names = {frozenset(each) for each in after_a_power_cut(store)}
    assert names == {frozenset(), frozenset({entry}), frozenset({shard}), frozenset({entry, shard})}
    store, _ = change(store, Sync("entries"))
    assert {frozenset(each) for each in after_a_power_cut(store)} == {frozenset({entry}), frozenset({entry, shard})}


def test_unsynced_file_is_torn_after_power_cut() -> None:
    entry = Name("entry", "W", 0)
    store, _ = change({}, Link(entry, Data(("a",)), content_is_synced=False))
    store, _ = change(store, Sync("entries"))
    assert list(after_a_power_cut(store)) == [{entry: Torn(entry)}]


def test_page_lists_each_rule_with_its_configuration() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    named = {row.split("`")[1]: row.split("`")[-2] for row in rows}
    assert {rule: named.get(rule) for rule in RULES} == {rule: each.shown_by for rule, each in RULES.items()}
    assert named.keys() == RULES.keys()


def test_every_rule_names_existing_configuration() -> None:
    assert {rule.shown_by for rule in RULES.values()} <= CONFIGURATIONS.keys()
    assert len(CONFIGURATIONS) == len(configurations())
