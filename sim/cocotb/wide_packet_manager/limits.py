# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the wide packet manager at its limits: those of today's."""

from sim.cocotb.packet_manager import limits
from sim.cocotb.packet_manager import places as full_and_empty

from .rig import PoolRig

pool_full = PoolRig.again(limits.pool_full)
can_accept = PoolRig.again(limits.can_accept)
fence_and_close = PoolRig.again(limits.fence_and_close)
dead_peer = PoolRig.again(limits.dead_peer)
same_address = PoolRig.again(limits.same_address)
ages_saturate = PoolRig.again(limits.ages_saturate)
next_batch = PoolRig.again(limits.next_batch)
young_and_dead = PoolRig.again(limits.young_and_dead)
places = PoolRig.again(full_and_empty.places)
neighbours = PoolRig.again(full_and_empty.neighbours)
marks_of_one = PoolRig.again(full_and_empty.marks_of_one)
place_in_a_moment = PoolRig.again(full_and_empty.place_in_a_moment)
leaving_is_enough = PoolRig.again(full_and_empty.leaving_is_enough)
old_at_once = PoolRig.again(full_and_empty.old_at_once)
