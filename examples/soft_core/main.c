/* SPDX-License-Identifier: Apache-2.0
   Three rows from this rank to itself, and what the events say of them. */
#include "board.h"
#include "moehub.h"

#ifndef ROW_BYTES
#define ROW_BYTES 128
#endif

enum { RANK = 0, REGION = 0, HANDLE = 0, ROWS = 3, CAPACITY = 4, STRIDE = 128 };

/* Where the hub writes, a bank for even and one for odd epochs. */
static volatile uint32_t landed[2][CAPACITY][STRIDE / 4] __attribute__((aligned(128)));
static volatile uint32_t spilled[2][2 * CAPACITY] __attribute__((aligned(8)));

static void say(const char *text) {
  while (*text)
    CONSOLE = (uint8_t)*text++;
}

/* Ends the program: its name for what went wrong, and the number that the hub gave. */
#define MUST(expression, expected)                     \
  do {                                                 \
    uint32_t got = (expression);                       \
    if (got != (expected)) {                           \
      say(#expression " is not " #expected "\n");      \
      return got ? (int)got : -1;                      \
    }                                                  \
  } while (0)

static int one_epoch(uint32_t epoch) {
  MUST(moehub_order(MOEHUB_REGION_ORDER_OPEN, REGION, epoch), 0);
  moehub_handle(HANDLE, RANK, REGION, ROW_BYTES, epoch);

  for (uint32_t rowid = 0; rowid < ROWS; rowid++) {
    uint32_t row[ROW_BYTES / 4];
    for (uint32_t n = 0; n < ROW_BYTES / 4; n++)
      row[n] = epoch << 24 | rowid << 16 | n;
    MUST(moehub_store_row(HANDLE, epoch, rowid, row, ROW_BYTES), 0);
  }
  MUST(moehub_close(HANDLE, epoch), 0);

  /* Tiles of two rows: the second one, with one row, is ready once all have closed. */
  uint32_t seen = 0, at = 0;
  for (;;) {
    struct moehub_event event = moehub_wait();
    MUST(event.region, REGION);
    MUST(event.epoch, epoch);
    if (event.kind == MOEHUB_EVENT_KIND_ALL) {
      MUST(event.rows, ROWS);
      MUST(event.refused, 0);
      break;
    }
    MUST(event.kind, MOEHUB_EVENT_KIND_READY);
    say("READY\n");
    /* What is ready is in memory, now. Slots are given in the order of arrival: the row says
       which one it is. */
    at = (uint32_t)event.group << 1;
    for (uint32_t end = at + event.rows; at < end; at++) {
      volatile uint32_t *row = landed[epoch & 1][at];
      uint32_t rowid = row[0] >> 16 & 0xff;
      for (uint32_t n = 0; n < ROW_BYTES / 4; n++)
        MUST(row[n], epoch << 24 | rowid << 16 | n);
      seen |= 1u << rowid;
    }
  }
  say("ALL\n");
  MUST(seen, (1u << ROWS) - 1);
  MUST(moehub_order(MOEHUB_REGION_ORDER_RELEASE, REGION, epoch), 0);
  return 0;
}

static const struct moehub_region region = {
    .base = {(uint32_t)landed[0], (uint32_t)landed[1]},
    .spill = {(uint32_t)spilled[0], (uint32_t)spilled[1]},
    .stride = STRIDE,
    .row_bytes = ROW_BYTES,
    .capacity = CAPACITY,
    .log2_tile = 1,
    .row_span = CAPACITY,
    .expected = 1,
};

int main(void) {
  moehub_start(RANK);
  MUST(moehub_region(REGION, &region), 0);
  for (uint32_t epoch = 0; epoch < 3; epoch++) {
    int failed = one_epoch(epoch);
    if (failed)
      return failed;
  }
  MUST(BRIDGE_ANSWER >> 9, 0); /* no register access was refused */
  return 0;
}
