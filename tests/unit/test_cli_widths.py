"""How a table fits into a terminal."""

from tenure.cli.widths import GAP, fit

ID = "01M8MK6QEPJST66P3DVDZ1C1P0"
DATE = "2026-11-29 21:26:01"
CELLS = [["TASK", ID], ["STATE", "SUCCEEDED"], ["RUN", "default"], ["WORK", "wc -w " + "x" * 90], ["AT", DATE]]
SPARE = [0, 0, 1, 0, 2]


def used(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def test_with_room_for_all_each_column_is_as_wide_as_its_longest_text() -> None:
    fitting = fit(CELLS, SPARE, 200)
    assert fitting.widths == {0: 26, 1: 9, 2: 7, 3: 96, 4: 19}
    assert fitting.left_out == ()


def test_ids_and_states_stay_whole_and_long_texts_take_what_is_left() -> None:
    fitting = fit(CELLS, SPARE, 100)
    assert fitting.widths == {0: 26, 1: 9, 2: 7, 3: 31, 4: 19}
    assert used(fitting.widths) == 100


def test_a_date_is_broken_before_a_column_is_left_out() -> None:
    assert fit(CELLS, SPARE, 80).widths == {0: 26, 1: 9, 2: 7, 3: 20, 4: 10}


def test_what_can_be_spared_most_is_left_out_first() -> None:
    assert fit(CELLS, SPARE, 79).left_out == (4,)
    assert fit(CELLS, SPARE, 60).left_out == (2, 4)


def test_what_cannot_be_spared_is_shown_however_narrow_it_is() -> None:
    assert fit(CELLS, SPARE, 10).widths == {0: 26, 1: 9, 3: 20}
    assert fit([["A", ""]], [0], 10).widths == {0: 1}
