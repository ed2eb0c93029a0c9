"""Folds go forward in time, and every kind of leak that is planted is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter_lab.protocol.folds import Fold, make_blocked_folds
from arbiter_lab.protocol.leakage import (
    Leak,
    depends_on_days,
    find_leaks,
    reach_of_maturities,
    require_no_leaks,
)

DAYS = 60


@pytest.fixture
def fold() -> Fold:
    """Days 0-27 train, 30-42 validate (an embargo of 2), 45-59 are scored."""
    return make_blocked_folds(DAYS, 4, embargo=2)[1]


def test_folds_by_hand() -> None:
    folds = make_blocked_folds(10, 5, embargo=1)
    assert [fold.to_dict() for fold in folds] == [
        {"fold": 2, "train": [0, 0], "validate": [2, 2], "windows": [[4, 5], [6, 7], [8, 9]]},
        {"fold": 3, "train": [0, 2], "validate": [4, 4], "windows": [[6, 7], [8, 9]]},
        {"fold": 4, "train": [0, 4], "validate": [6, 6], "windows": [[8, 9]]},
    ]


def test_rolling_horizon_by_hand() -> None:
    windows = make_blocked_folds(12, 3, horizon=3)[0].windows
    assert [window.tolist() for window in windows] == [[8, 9, 10], [11]]


@given(st.integers(3, 400), st.integers(3, 9), st.integers(0, 5), st.none() | st.integers(1, 50))
def test_folds_go_forward_in_time(
    days: int, blocks: int, embargo: int, horizon: int | None
) -> None:
    assume(days >= blocks * (embargo + 1))
    folds = make_blocked_folds(days, blocks, embargo=embargo, horizon=horizon)
    assert len(folds) == blocks - 2
    for fold in folds:
        assert fold.train[-1] + embargo < fold.validate[0]
        assert fold.validate[-1] + embargo < fold.test[0]
        assert fold.train[0] == 0
        assert fold.test[-1] == days - 1
        assert (np.diff(fold.test) == 1).all()
        steps = np.arange(days) + embargo
        assert find_leaks(fold, reaches={"labels": steps}, contents=range(days)) == []
    sizes = [fold.validate.size for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_that_would_be_empty_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        make_blocked_folds(100, 2)
    with pytest.raises(ValueError, match="20 days in 5 blocks leave 4 a block"):
        make_blocked_folds(20, 5, embargo=4)


def test_parts_that_are_no_days_are_refused(fold: Fold) -> None:
    with pytest.raises(ValueError, match="train of fold 3 is not a row of increasing days"):
        replace(fold, train=fold.train[::-1])
    with pytest.raises(ValueError, match="validate of fold 3"):
        replace(fold, validate=fold.validate[:0])
    with pytest.raises(ValueError, match="no window to score"):
        replace(fold, windows=())


def test_clean_fold_has_no_leaks(fold: Fold) -> None:
    require_no_leaks(
        fold,
        reaches={"labels": np.arange(DAYS) + 2},
        fitted_on={"normaliser": fold.train},
        chosen_on={"stopping": fold.validate},
        contents=range(DAYS),
    )


def test_planted_overlap_is_found(fold: Fold) -> None:
    planted = replace(fold, train=np.append(fold.train, [33, 50]))
    kinds = {(leak.kind, leak.day) for leak in find_leaks(planted)}
    assert ("overlap", 33) in kinds
    assert ("overlap", 50) in kinds


def test_planted_future_day_is_found(fold: Fold) -> None:
    # day 43 lies in the embargo after validation began: in no other part, but after it
    planted = replace(fold, train=np.append(fold.train, 43))
    assert find_leaks(planted) == [Leak(3, "order", 43, 30)]


def test_shuffled_folds_are_found() -> None:
    # what a random split of days would be
    order = np.random.default_rng(0).permutation(DAYS)
    shuffled = Fold(2, np.sort(order[:40]), np.sort(order[40:50]), (np.sort(order[50:]),))
    assert len(find_leaks(shuffled)) > 20


def test_planted_label_horizon_is_found(fold: Fold) -> None:
    # labels three days ahead, an embargo of two: the last day of training knows day 30
    found = find_leaks(fold, reaches={"labels": np.arange(DAYS) + 3})
    assert found == [Leak(3, "labels", 27, 30), Leak(3, "labels", 42, 45)]
    with pytest.raises(ValueError, match=r"fold 3, labels: day 27 knows day 30; .*embargo"):
        require_no_leaks(fold, reaches={"labels": np.arange(DAYS) + 3})


def test_planted_maturities_are_found(fold: Fold) -> None:
    as_of = np.datetime64("2024-01-01T16:00") + np.arange(DAYS) * np.timedelta64(1, "D")
    reach = reach_of_maturities(as_of, 10.0 / 365.0)
    assert reach[0] == 10
    assert reach[-1] == DAYS - 1  # the timeline ends
    found = find_leaks(fold, reaches={"payoffs": reach})
    # training days 20 to 27 hold options that expire on day 30 or later
    assert [leak.day for leak in found if leak.day < 30] == list(range(20, 28))
    assert find_leaks(fold, reaches={"payoffs": reach_of_maturities(as_of, 2.0 / 365.0)}) == []


def test_planted_preprocessing_is_found(fold: Fold) -> None:
    everything = np.arange(DAYS)
    found = find_leaks(fold, fitted_on={"normaliser": everything})
    assert {leak.day for leak in found} == set(fold.validate) | set(fold.test)
    assert {leak.kind for leak in found} == {"normaliser"}


def test_planted_choice_on_scored_days_is_found(fold: Fold) -> None:
    assert find_leaks(fold, chosen_on={"learning rate": [31, 45]}) == [
        Leak(3, "learning rate", 45, 45)
    ]


def test_planted_copy_is_found(fold: Fold) -> None:
    contents = [f"digest {day}" for day in range(DAYS)]
    contents[5] = contents[50]
    assert find_leaks(fold, contents=contents) == [Leak(3, "copy", 5, 50)]


def test_reach_must_be_given_for_every_day(fold: Fold) -> None:
    with pytest.raises(ValueError, match=r"reaches\['labels'\] has shape \(10,\)"):
        find_leaks(fold, reaches={"labels": np.arange(10)})
    with pytest.raises(ValueError, match="contents has 10 entries, and the fold has day 59"):
        find_leaks(fold, contents=range(10))


# What is not declared is found by changing the days.


def test_preprocessing_that_reads_held_out_days_is_found(
    fold: Fold, rng: np.random.Generator
) -> None:
    data = rng.standard_normal((DAYS, 7))
    held = np.concatenate([fold.validate, fold.test])

    def honest(days: Array) -> Array:
        own = days[fold.train]
        return np.asarray((own - own.mean(0)) / own.std(0))

    def normalised_on_all(days: Array) -> Array:
        return np.asarray(((days - days.mean(0)) / days.std(0))[fold.train])

    def looks_a_week_ahead(days: Array) -> dict[str, Array]:
        return {"x": days[fold.train], "y": days[fold.train + 7]}

    assert not depends_on_days(honest, data, held)
    assert depends_on_days(normalised_on_all, data, held)
    assert depends_on_days(looks_a_week_ahead, data, held)
    assert depends_on_days(honest, data, fold.train[:1])  # it does see what is read


def test_principal_components_of_all_days_are_found(fold: Fold, rng: np.random.Generator) -> None:
    data = rng.standard_normal((DAYS, 5)).cumsum(0)
    data[3, 2] = np.nan  # a missing quote does not blind the check

    def projected(days: Array, basis_days: NDArray[np.int64]) -> tuple[Array, int]:
        filled = np.nan_to_num(days)
        basis = np.linalg.svd(filled[basis_days] - filled[basis_days].mean(0))[2][:2]
        return filled[fold.train] @ basis.T, basis_days.size

    assert not depends_on_days(lambda d: projected(d, fold.train), data, fold.test)
    assert depends_on_days(lambda d: projected(d, np.arange(DAYS)), data, fold.test)
