/* SPDX-License-Identifier: Apache-2.0
   A driver for one hub: set-up, stores, closes, events. docs/programming.md says why in this order. */
#ifndef MOEHUB_H
#define MOEHUB_H

#include <stdint.h>

#include "moehub_regs.h"

struct moehub_region {
  uint32_t base[2], spill[2]; /* addresses, for even and odd epochs; base: of packet_bytes */
  uint32_t stride, row_bytes; /* bytes: of packet_bytes, of 16 */
  uint32_t capacity;          /* slots */
  uint32_t log2_tile;         /* rows that become ready together */
  uint32_t group_base;        /* group of the first tile */
  uint32_t row_span;          /* RowIDs 0 .. row_span - 1 may be stored */
  uint32_t expected;          /* producers that close */
};

struct moehub_event {
  uint8_t kind, plain, region, epoch, group, rows, status, refused;
};

/* All return 0, or why not: bits of regions.ERROR, a reason of docs/formats.md. */
void moehub_start(uint32_t rank);
uint32_t moehub_region(uint32_t index, const struct moehub_region *region);
void moehub_handle(uint32_t index, uint32_t rank, uint32_t region, uint32_t row_bytes,
                   uint32_t epoch);
uint32_t moehub_order(enum moehub_region_order order, uint32_t region, uint32_t epoch);
uint32_t moehub_close(uint32_t handle, uint32_t epoch);

/* Row `rowid`, `bytes` (of 32) from `row`, through the bridge; waits for each answer. */
uint32_t moehub_store_row(uint32_t handle, uint32_t epoch, uint32_t rowid, const uint32_t *row,
                          uint32_t bytes);

/* Waits for the next event and takes it. */
struct moehub_event moehub_wait(void);

#endif
