"""The policy: what waits, what runs and what is allowed, to the next turn. Pure data, no MLX."""

from __future__ import annotations

from engine.sched.policy import Active, Limits, Turn, Waiting, plan


def test_nothing_to_do_is_an_empty_turn() -> None:
    assert plan([], [], Limits(rows=8)) == Turn()


def test_requests_begin_in_order_of_arrival_up_to_the_cap() -> None:
    waiting = [Waiting(id=i, chunks=0) for i in (4, 5, 6)]
    turn = plan(waiting, [Active(id=1, chunks_left=0)], Limits(rows=3))
    assert turn == Turn(admit=(4, 5), decode=(1, 4, 5))


def test_priority_goes_before_arrival_and_ties_keep_it() -> None:
    waiting = [Waiting(id=1, chunks=0), Waiting(id=2, chunks=0, priority=1), Waiting(id=3, chunks=0, priority=1)]
    assert plan(waiting, [], Limits(rows=2)).admit == (2, 3)


def test_the_first_that_does_not_fit_holds_back_those_behind_it() -> None:
    waiting = [Waiting(id=1, chunks=0, kv_bytes=60), Waiting(id=2, chunks=0, kv_bytes=10)]
    running = [Active(id=9, chunks_left=0, kv_bytes=50)]
    assert plan(waiting, running, Limits(rows=8, kv_bytes=100)).admit == ()
    assert plan(waiting, [], Limits(rows=8, kv_bytes=100)).admit == (1, 2)


def test_one_chunk_a_turn_for_the_row_that_was_served_longest_ago() -> None:
    rows = [Active(id=1, chunks_left=9, served=7), Active(id=2, chunks_left=1, served=0), Active(id=3, chunks_left=0)]
    assert plan([], rows, Limits(rows=8)) == Turn(prefill=2, decode=(2, 3))
    rows[1] = Active(id=2, chunks_left=3, served=8)
    assert plan([], rows, Limits(rows=8)) == Turn(prefill=1, decode=(3,))


def test_a_long_prompt_holds_up_a_short_one_by_a_chunk_at_most() -> None:
    """Row 1 has ten chunks, row 2 arrives with one in the middle of them: it is served in the turn behind the next."""
    left, served, order = {1: 10, 2: 1}, {1: 0, 2: 0}, []
    for turn_number in range(1, 12):
        rows = [Active(id=i, chunks_left=left[i], served=served[i]) for i in left if i == 1 or turn_number > 4]
        turn = plan([], rows, Limits(rows=8))
        if turn.prefill is not None:
            left[turn.prefill] -= 1
            served[turn.prefill] = turn_number
            order.append(turn.prefill)
    assert order == [1] * 4 + [2] + [1] * 6


def test_a_parked_row_neither_steps_nor_prefills_and_keeps_its_place() -> None:
    rows = [Active(id=1, chunks_left=0, parked=True), Active(id=2, chunks_left=4, parked=True)]
    assert plan([Waiting(id=3, chunks=0)], rows, Limits(rows=2)) == Turn()
    assert plan([Waiting(id=3, chunks=0)], rows, Limits(rows=3)) == Turn(admit=(3,), decode=(3,))
