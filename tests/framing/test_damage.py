"""`DamageLog` merges adjacent ranges and limits the length of its list, but not its counts."""

from __future__ import annotations

import pickle

from asyncrec._framing.damage import Damage, DamageLog


def test_adjacent_ranges_merge_under_first_reason() -> None:
    log = DamageLog()
    log.add(Damage(10, 5, "data", 1))
    log.add(Damage(15, 7, "length", 1))
    log.add(Damage(30, 1, "data", 2))
    assert log.listed == [Damage(10, 12, "data", 1), Damage(30, 1, "data", 2)]
    assert (log.lost_ranges, log.lost_bytes) == (2, 13)


def test_ranges_of_different_members_never_touch() -> None:
    log = DamageLog()
    log.add(Damage(0, 5, "data", 1, 100))
    log.add(Damage(5, 5, "data", 1, 200))
    log.add(Damage(10, 5, "compression", 1))
    assert log.lost_ranges == 3


def test_ambiguous_range_is_listed_but_not_lost() -> None:
    log = DamageLog()
    log.add(Damage(0, 10, "length", 0))
    log.add(Damage(10, 20, "ambiguous", 0))
    log.add(Damage(30, 5, "length", 1))
    assert [damage.reason for damage in log.listed] == ["length", "ambiguous", "length"]
    assert (log.lost_ranges, log.lost_bytes, log.ambiguous_ranges) == (2, 15, 1)


def test_late_ambiguous_range_is_listed_by_offset() -> None:
    log = DamageLog()
    log.add(Damage(0, 10, "length", 0))
    log.add(Damage(20, 5, "data", 1))
    log.add(Damage(10, 30, "ambiguous", 0))
    log.add(Damage(40, 5, "length", 2))
    assert [damage.offset for damage in log.listed] == [0, 10, 20, 40]
    log.add(Damage(45, 5, "length", 2))
    assert log.listed[-1] == Damage(40, 10, "length", 2)


def test_damage_log_lists_thousand_ranges_and_counts_all() -> None:
    log = DamageLog()
    for n in range(1500):
        log.add(Damage(10 * n, 3, "data", n))
        log.add(Damage(10 * n + 3, 1, "data", n))
    assert len(log.listed) == 1000
    assert log.listed[-1] == Damage(9990, 4, "data", 999)
    assert (log.lost_ranges, log.lost_bytes) == (1500, 6000)


def test_damage_round_trips_through_pickle_and_json() -> None:
    damage = Damage(3, 4, "data", 5, 6)
    assert pickle.loads(pickle.dumps(damage)) == damage
    assert damage.to_json() == {
        "offset": 3, "length": 4, "reason": "data", "records_before": 5, "member_offset": 6
    }  # fmt: skip
