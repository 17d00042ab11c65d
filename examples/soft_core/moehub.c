/* SPDX-License-Identifier: Apache-2.0 */
#include "moehub.h"
#include "board.h"
#include "moehub_regs.h"

#define REGISTER(name) WORD(HUB + MOEHUB_##name)
#define FIELD(name, value) \
  ((uint32_t)(value) << MOEHUB_##name##_SHIFT & MOEHUB_##name##_MASK)
#define GET(name, word) (((word) & MOEHUB_##name##_MASK) >> MOEHUB_##name##_SHIFT)

static void wait_while(uint32_t status_bits) {
  while (REGISTER(CONTROL_STATUS) & status_bits)
    ;
}

void moehub_start(uint32_t rank) {
  while (!GET(CONTROL_STATUS_CLEARED, REGISTER(CONTROL_STATUS)))
    ;
  REGISTER(ID_RANK) = rank;
}

uint32_t moehub_region(uint32_t index, const struct moehub_region *region) {
  REGISTER(REGIONS_INDEX) = index;
  REGISTER(REGIONS_FLAGS) = FIELD(REGIONS_FLAGS_VALID, 1) |
                            FIELD(REGIONS_FLAGS_LOG2_TILE, region->log2_tile) |
                            FIELD(REGIONS_FLAGS_EXPECTED, region->expected);
  REGISTER(REGIONS_BASE0_LO) = region->base[0];
  REGISTER(REGIONS_BASE1_LO) = region->base[1];
  REGISTER(REGIONS_SPILL_BASE0_LO) = region->spill[0];
  REGISTER(REGIONS_SPILL_BASE1_LO) = region->spill[1];
  REGISTER(REGIONS_STRIDE) = region->stride;
  REGISTER(REGIONS_ROW_BYTES) = region->row_bytes;
  REGISTER(REGIONS_CAPACITY) = region->capacity;
  REGISTER(REGIONS_GROUP_BASE) = region->group_base;
  REGISTER(REGIONS_ROW_FIRST) = 0;
  REGISTER(REGIONS_ROW_SPAN) = region->row_span;
  REGISTER(REGIONS_COMMIT) = 1;
  return REGISTER(REGIONS_ERROR);
}

void moehub_handle(uint32_t index, uint32_t rank, uint32_t region, uint32_t row_bytes,
                   uint32_t epoch) {
  REGISTER(HANDLES_INDEX) = index;
  REGISTER(HANDLES_FLAGS) = FIELD(HANDLES_FLAGS_VALID, 1) | FIELD(HANDLES_FLAGS_EPOCH, epoch);
  REGISTER(HANDLES_ROW_BYTES) = row_bytes;
  REGISTER(HANDLES_REPLICA0) =
      FIELD(HANDLES_REPLICA0_RANK, rank) | FIELD(HANDLES_REPLICA0_REGION, region);
  REGISTER(HANDLES_COMMIT) = 1;
}

uint32_t moehub_order(enum moehub_region_order order, uint32_t region, uint32_t epoch) {
  REGISTER(REGIONS_INDEX) = region;
  REGISTER(REGIONS_COMMAND) =
      FIELD(REGIONS_COMMAND_OP, order) | FIELD(REGIONS_COMMAND_EPOCH, epoch);
  wait_while(MOEHUB_CONTROL_STATUS_REGION_BUSY_MASK);
  uint32_t error = REGISTER(REGIONS_COMMAND_ERROR);
  if (error) {
    REGISTER(REGIONS_COMMAND_ERROR) = error;
    return GET(REGIONS_COMMAND_ERROR_REASON, error);
  }
  return 0;
}

uint32_t moehub_close(uint32_t handle, uint32_t epoch) {
  wait_while(MOEHUB_CONTROL_STATUS_COMMAND_BUSY_MASK);
  REGISTER(CONTROL_COMMAND) = FIELD(CONTROL_COMMAND_OP, MOEHUB_COMMAND_CLOSE) |
                              FIELD(CONTROL_COMMAND_HANDLE, handle) |
                              FIELD(CONTROL_COMMAND_EPOCH, epoch);
  uint32_t answer;
  do
    answer = REGISTER(CONTROL_ANSWER);
  while (GET(CONTROL_ANSWER_BUSY, answer));
  return GET(CONTROL_ANSWER_STATUS, answer);
}

uint32_t moehub_store_row(uint32_t handle, uint32_t epoch, uint32_t rowid, const uint32_t *row,
                          uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += 32) {
    uint64_t operand = moehub_operand_row_pack((struct moehub_operand_row){
        .handle = handle, .epoch = epoch, .rowid = rowid, .row_off = at / 16});
    BRIDGE_OPERAND_LO = (uint32_t)operand;
    BRIDGE_OPERAND_HI = (uint32_t)(operand >> 32);
    for (uint32_t n = 0; n < 8; n++)
      BRIDGE_DATA[n] = row[at / 4 + n];
    BRIDGE_MASK = 0xffffffffu;
    uint32_t answer;
    do
      answer = BRIDGE_ANSWER;
    while (!(answer & 0x100));
    if (answer & 0xf)
      return answer & 0xf;
  }
  return 0;
}

struct moehub_event moehub_wait(void) {
  while (!BRIDGE_EVENT)
    ;
  /* Each field begins on a byte; in this hub none is longer than one. */
  uint32_t low = BRIDGE_EVENT_LO, high = BRIDGE_EVENT_HI;
  BRIDGE_EVENT = 1;
  return (struct moehub_event){
      (uint8_t)low,  (uint8_t)(low >> 8),  (uint8_t)(low >> 16),  (uint8_t)(low >> 24),
      (uint8_t)high, (uint8_t)(high >> 8), (uint8_t)(high >> 16), (uint8_t)(high >> 24),
  };
}
