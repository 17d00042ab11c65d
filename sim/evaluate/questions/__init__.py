# SPDX-License-Identifier: Apache-2.0
"""Questions that no published figure answers, one file each: what the best software could do on the
same links, what another order of rows or one row per GPU would be worth, what a token waits for in
decode, what its bytes cost on the links, what a late rank costs the others, what placing experts by
their loads is worth, and what software hides by running layers beside each other.

Times are of several routings; a ratio whose range over them has 1 in it claims nothing.
"""
