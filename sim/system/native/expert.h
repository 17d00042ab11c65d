// SPDX-License-Identifier: Apache-2.0
// Expert stand-in: takes tiles of rows, waits as long as the GEMM would, and returns one transformed row per row to the
// address in its last bytes (ReturnRecord) with plain stores. docs/running.md defines the transformation.
#pragma once
#include <algorithm>
#include <queue>
#include <vector>

#include "memory.h"
#include "stores.h"

struct RegionPlace {            // what the consumer's software knows of one region
    bool used = false;
    uint64_t base[2] = {0, 0};
    uint32_t stride = 0, row_bytes = 0, group_base = 0, log2_tile = 0, expert = 0;
};

struct ExpertSettings {
    uint64_t cycles = 0;        // per tile, on one unit
    unsigned units = 4;         // tiles worked on at the same time
    uint32_t out_bytes = 0;     // bytes of a returned row; 0 switches the stand-in off
    uint8_t owner = 0;
};

class Expert {
  public:
    void connect(const ExpertSettings *settings, const Arena *arena, std::vector<LaneStores> *lanes, unsigned ranks) {
        settings_ = settings, arena_ = arena, lanes_ = lanes, ranks_ = ranks;
        free_.assign(settings->units, 0);
    }

    void ready(uint64_t cycle, const RegionPlace &region, unsigned bank, uint32_t group, uint32_t rows) {
        uint64_t slot = uint64_t(group - region.group_base) << region.log2_tile;
        start(cycle, {0, 0, region.base[bank] + slot * region.stride, region.stride, region.row_bytes, rows, region.expert});
    }

    // Address-centric software: a tile that may start when all signals of `mask` were given.
    void tile_after(uint64_t mask, uint64_t cycle, uint64_t addr, const RegionPlace &region, uint32_t rows) {
        waiting_.push_back({mask, {0, 0, addr, region.stride, region.row_bytes, rows, region.expert}});
        release(cycle);
    }
    void signal(uint64_t cycle, uint64_t number) {
        signals_ |= 1ull << number;
        release(cycle);
    }

    void step(uint64_t cycle) {
        while (!work_.empty() && work_.top().due <= cycle) {
            Tile tile = work_.top();
            work_.pop();
            for (uint32_t row = 0; row < tile.rows; row++) send_back(tile, tile.addr + uint64_t(row) * tile.stride);
            tiles++;
        }
    }

    bool working() const { return !work_.empty(); }
    bool idle() const { return work_.empty() && waiting_.empty(); }
    uint64_t tiles = 0, rows = 0, lost = 0;

  private:
    struct Tile {
        uint64_t due, order, addr;
        uint32_t stride, row_bytes, rows, expert;
        bool operator<(const Tile &other) const { return due != other.due ? due > other.due : order > other.order; }
    };

    struct Waiting { uint64_t mask; Tile tile; };

    void start(uint64_t cycle, Tile tile) {
        if (!settings_->out_bytes) return;
        auto unit = std::min_element(free_.begin(), free_.end());
        *unit = std::max(*unit, cycle) + settings_->cycles;
        tile.due = *unit, tile.order = order_++;
        work_.push(tile);
    }

    void release(uint64_t cycle) {
        auto ready = [this](const Waiting &entry) { return (signals_ & entry.mask) == entry.mask; };
        for (auto &entry : waiting_)
            if (ready(entry)) start(cycle, entry.tile);
        waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), ready), waiting_.end());
    }

    void send_back(const Tile &tile, uint64_t addr) {
        ReturnRecord back = {0, ~0u, 0};
        uint32_t payload = tile.row_bytes - uint32_t(sizeof(back));
        if (arena_->holds(addr, tile.row_bytes) && tile.row_bytes > sizeof(back))
            std::memcpy(&back, arena_->at(addr + payload), sizeof(back));
        if (back.rank >= ranks_ || !operand_plain::addr.fits(back.address)) {
            lost++;     // the row was not what its sender wrote: readiness came too early, or bytes were damaged
            return;
        }
        const uint8_t *row = arena_->at(addr);
        auto out = std::make_shared<std::vector<uint8_t>>(settings_->out_bytes);
        for (uint32_t done = 0, turn = 0; done < settings_->out_bytes; done += payload, turn++) {
            uint32_t count = std::min(payload, settings_->out_bytes - done);
            uint8_t add = static_cast<uint8_t>(tile.expert * 29 + turn * 17 + 7);
            for (uint32_t n = 0; n < count; n++) (*out)[done + n] = static_cast<uint8_t>(row[n] * 5 + add);
        }
        for (auto &lane : *lanes_) {
            auto job = std::make_shared<Job>();
            job->plain = true, job->source = 1, job->owner = settings_->owner;
            job->rank = static_cast<uint16_t>(back.rank);
            job->operand = plain_operand(back.rank, back.address);
            job->buffer = out, job->data = out->data(), job->bytes = settings_->out_bytes;
            lane.push(job);
        }
        rows++;
    }

    const ExpertSettings *settings_ = nullptr;
    const Arena *arena_ = nullptr;
    std::vector<LaneStores> *lanes_ = nullptr;
    unsigned ranks_ = 0;
    std::vector<uint64_t> free_;
    std::priority_queue<Tile> work_;
    std::vector<Waiting> waiting_;
    uint64_t order_ = 0, signals_ = 0;
};
