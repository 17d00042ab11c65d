# SPDX-License-Identifier: Apache-2.0
"""Questions that no published figure answers, one file each: what the best software could do on the
same links, what another order of rows or one row per GPU would be worth, what a token waits for in
decode, and what its bytes cost on the links.

Times are of several routings; a ratio whose range over them has 1 in it claims nothing.
"""
