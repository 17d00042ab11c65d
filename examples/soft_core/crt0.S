# SPDX-License-Identifier: Apache-2.0
# What C needs before main: a stack, and zeroes where nothing else is.
    .section .start, "ax"
    .globl _start
_start:
    la   sp, _stack
    la   t0, _bss
    la   t1, _end
1:  bgeu t0, t1, 2f
    sw   zero, 0(t0)
    addi t0, t0, 4
    j    1b
2:  call main
    li   t0, 0x30000004         # exit: what main returns
    sw   a0, 0(t0)
3:  j    3b
