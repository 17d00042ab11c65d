/* SPDX-License-Identifier: Apache-2.0
   What stands where in soc.v, and the way from words on a bus to the hub's streams. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define WORD(address) (*(volatile uint32_t *)(address))

#define HUB 0x10000000u /* registers of the hub, moehub_regs.h */

#define BRIDGE_OPERAND_LO WORD(0x20000000u)
#define BRIDGE_OPERAND_HI WORD(0x20000004u)
#define BRIDGE_MASK WORD(0x20000008u)       /* a write sends the store; bit n: byte n of the data */
#define BRIDGE_ANSWER WORD(0x2000000cu)     /* of the last store: status 3:0, answered 8; slverr 9 */
#define BRIDGE_EVENT WORD(0x20000010u)      /* 1: an event waits; a write takes it */
#define BRIDGE_EVENT_LO WORD(0x20000014u)
#define BRIDGE_EVENT_HI WORD(0x20000018u)
#define BRIDGE_DATA ((volatile uint32_t *)0x20000020u) /* 32 bytes, to 0x3f */

#define CONSOLE WORD(0x30000000u)

#endif
