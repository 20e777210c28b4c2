#!/usr/bin/env python3
"""channels.py: orders of messages that NCCL would pass, and orders that would hang or mix sizes."""
import sys
import unittest

import channels


def report(rank, *groups, size=2, name="c"):
    kinds = sorted(set(groups))
    return {"channels": [{"id": name, "rank": rank, "size": size, "groups": kinds, "order": [kinds.index(g) for g in groups]}]}


class Channels(unittest.TestCase):
    def test_messages_of_one_group_pass_together(self):
        both = [report(0, "send 1 8; receive 1 8", "send 1 8; receive 1 8"), report(1, "receive 0 8; send 0 8", "send 0 8; receive 0 8")]
        self.assertEqual(channels.problems(both), [])

    def test_two_sends_first_wait_for_ever(self):
        crossed = [report(0, "send 1 8", "receive 1 8"), report(1, "send 0 8", "receive 0 8")]
        self.assertEqual(len(channels.problems(crossed)), 2)
        self.assertIn("waits for ever", channels.problems(crossed)[0])

    def test_sizes_must_agree_in_order(self):
        swapped = [report(0, "send 1 8", "send 1 16"), report(1, "receive 0 16", "receive 0 8")]
        self.assertIn("send of 8 bytes meets receive of 16", channels.problems(swapped)[0])

    def test_a_message_too_few(self):
        self.assertIn("waits for ever", channels.problems([report(0, "send 1 8"), report(1)])[0])

    def test_a_rank_too_few(self):
        self.assertIn("ranks [1] sent nothing", channels.problems([report(0, "send 1 8")])[0])

    def test_collectives_take_all_ranks(self):
        three = [report(rank, "all_reduce -1 8", "all_gather -1 4", size=3) for rank in range(3)]
        self.assertEqual(channels.problems(three), [])
        three[1] = report(1, "all_gather -1 4", "all_reduce -1 8", size=3)
        self.assertEqual(len(channels.problems(three)), 3)

    def test_communicators_are_apart(self):
        apart = [report(0, "send 1 8", name="a"), report(1, "receive 0 8", name="a"),
                 report(0, "send 1 4", name="b"), report(1, "receive 0 4", name="b")]
        self.assertEqual(channels.problems(apart), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
