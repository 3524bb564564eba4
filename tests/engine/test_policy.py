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
    assert plan([], rows, Limits(rows=8)) == Turn(prefill=(2,), decode=(2, 3))
    rows[1] = Active(id=2, chunks_left=3, served=8)
    assert plan([], rows, Limits(rows=8)) == Turn(prefill=(1,), decode=(3,))


def test_a_long_prompt_holds_up_a_short_one_by_a_chunk_at_most() -> None:
    """Row 1 has ten chunks, row 2 arrives with one in the middle of them: it is served in the turn behind the next."""
    left, served, order = {1: 10, 2: 1}, {1: 0, 2: 0}, []
    for turn_number in range(1, 12):
        rows = [Active(id=i, chunks_left=left[i], served=served[i]) for i in left if i == 1 or turn_number > 4]
        turn = plan([], rows, Limits(rows=8))
        for i in turn.prefill:
            left[i] -= 1
            served[i] = turn_number
            order.append(i)
    assert order == [1] * 4 + [2] + [1] * 6


def test_a_parked_row_neither_steps_nor_prefills_and_keeps_its_place() -> None:
    rows = [Active(id=1, chunks_left=0, parked=True), Active(id=2, chunks_left=4, parked=True)]
    assert plan([Waiting(id=3, chunks=0)], rows, Limits(rows=2)) == Turn()
    assert plan([Waiting(id=3, chunks=0)], rows, Limits(rows=3)) == Turn(admit=(3,), decode=(3,))


def test_prompts_share_a_forward_as_far_as_its_tokens_reach_with_padding() -> None:
    rows = [Active(id=i, chunks_left=n, next_tokens=t) for i, n, t in ((1, 1, 10), (2, 2, 30), (3, 1, 5), (4, 0, 0))]
    assert plan([], rows, Limits(rows=8, prefill=0)).prefill == (1,)
    assert plan([], rows, Limits(rows=8, prefill=20)) == Turn(prefill=(1, 3), decode=(1, 3, 4))  # 2 x 30 is too many
    assert plan([], rows, Limits(rows=8, prefill=60)).prefill == (1, 2)
    assert plan([], rows, Limits(rows=8, prefill=90)) == Turn(prefill=(1, 2, 3), decode=(1, 3, 4))
    arrives = plan([Waiting(id=5, chunks=1, next_tokens=40)], rows, Limits(rows=8, prefill=160))
    assert arrives == Turn(admit=(5,), prefill=(1, 2, 3, 5), decode=(1, 3, 4, 5))


def test_a_prompt_longer_than_the_room_goes_on_alone_and_first_in_its_turn() -> None:
    rows = [Active(id=1, chunks_left=1, next_tokens=9, served=4), Active(id=2, chunks_left=5, next_tokens=99, served=3)]
    assert plan([], rows, Limits(rows=8, prefill=50)).prefill == (2,)
