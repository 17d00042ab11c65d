// SPDX-License-Identifier: Apache-2.0
// One rank: a verilated hub with everything around it but the fabric.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "Vmoehub.h"
#include "expert.h"
#include "fabric.h"
#include "hub_pins.h"
#include "program.h"
#ifdef FLAT
#include "Vmoehub___024root.h"
void Vmoehub___024root___eval_nba(Vmoehub___024root *);
#endif

struct Settings {
    unsigned ranks = 2, lanes = 1, links = 1, loop_lanes = 1, packet_bytes = 128;
    Clocks clocks;                                      // of the links, where they have their own
    uint64_t window = 64, latency = 64, threads = 1, max_cycles = 1000000, drain = 1000, bin = 256, seed = 1;
    uint64_t bin_from = 0;                              // bins begin when the rank passes this mark; 0: with the first cycle
    std::string folder;
    StoreSettings stores;
    ExpertSettings expert;
    MemoryModel memory;
    Stall link, event;
    std::map<unsigned, MemoryModel> memory_of;          // ranks whose memory behaves differently
    std::map<unsigned, uint64_t> dead_from;             // rank -> cycle at which its hub stops
    uint64_t reset_at = ~0ull - 8;                      // cycle of a second reset of all ranks and everything around them
    std::map<unsigned, uint64_t> reset_of;              // rank -> cycle of a second reset of this rank and what is around it
    std::map<unsigned, std::pair<uint64_t, uint64_t>> paused;       // rank -> cycles in which its clock stands still
    std::map<unsigned, std::pair<uint64_t, uint64_t>> events_held;  // rank -> cycles in which it takes no event
    unsigned planted = 0;                               // drives the pin planted_bug, where the Verilog has one
    bool watch = false;                                 // the logs of StoreRecord, CommandRecord, BeatRecord, packets sent
    int record = -1;                                    // rank whose pins are recorded
    std::map<unsigned, std::vector<RegionPlace>> regions;
    std::map<unsigned, uint64_t> arena;                 // bytes of memory per rank
    std::vector<Fault> faults;
};

class Node {
  public:
    Node(const Settings &settings, unsigned rank) : settings_(settings), rank_(rank), random_(settings.seed * 64 + rank) {
        context_.randReset(0);
        hub_ = std::make_unique<Vmoehub>(&context_);
        hub_pins(*hub_, pin_);
        std::string base = settings.folder + "/rank" + std::to_string(rank);
        events_.open(base + ".events"), allocs_.open(base + ".allocs"), packets_.open(base + ".packets");
        refusals_.open(base + ".refusals"), reads_.open(base + ".reads"), issues_.open(base + ".issues");
        if (settings.watch) {
            stores_.open(base + ".stores"), commands_.open(base + ".commands"), beats_.open(base + ".beats");
            sent_.open(base + ".sent");
        }
        memory_model_ = settings.memory_of.count(rank) ? settings.memory_of.at(rank) : settings.memory;
        arena_.open(base + ".mem", settings.arena.count(rank) ? settings.arena.at(rank) : 1 << 20);
        load(base);
        connect(pin_);
        attach();
    }

    // Runs [from, to). Touches nothing outside this rank but link_in[].queue (filled before) and link_out[].done.
    void run(uint64_t from, uint64_t to) {
        for (uint64_t cycle = from; cycle < to; cycle++) step(cycle);
    }

    bool finished() const {
        if (dead_) return true;
        for (auto &thread : threads)
            if (!thread.finished()) return false;
        return !busy() && expert_.idle();
    }
    bool dead() const { return dead_; }

    void close() {
        hub_->final();
        if (recording_) std::fclose(recording_), recording_ = nullptr;
        events_.close(), allocs_.close(), packets_.close(), refusals_.close(), reads_.close(), issues_.close();
        stores_.close(), commands_.close(), beats_.close(), sent_.close();
    }

    void summary(std::FILE *file) const;

    std::vector<Thread> threads;
    std::vector<LinkOut> link_out;
    std::vector<LinkIn> link_in;
    // Per bin: bytes written to memory, then for each link: flits received, and its ticks by LinkUse.
    std::vector<uint32_t> bins;

  private:
    void load(const std::string &base);
    void connect(const PinTable &pin);
    void attach();

    static bool within(const std::map<unsigned, std::pair<uint64_t, uint64_t>> &spans, unsigned rank, uint64_t cycle) {
        auto span = spans.find(rank);
        return span != spans.end() && cycle >= span->second.first && cycle < span->second.second;
    }

    bool busy() const {
        for (auto &lane : lanes_)
            if (lane.busy()) return true;
        for (auto &port : writes_)
            if (!port.idle()) return true;
        return false;
    }

    void step(uint64_t cycle) {
        if (dead_ || (dead_ = cycle >= dead_from_)) return;
        if (within(settings_.paused, rank_, cycle)) return;
        if (cycle == reset_from_) attach(), arena_.forget();
        if (cycle < 4 || (cycle >= reset_from_ && cycle < reset_from_ + 4)) {
            reset();
            return;
        }
        if (cleared_seen_) {
            for (auto &thread : threads) thread.step(cycle);
            expert_.step(cycle);
        }
        if (bins_from_ == NEVER && marks_.count(settings_.bin_from)) bins_from_ = cycle;
        for (auto &lane : lanes_) lane.drive(cycle);
        uint64_t tick = settings_.clocks.tick(cycle), next = settings_.clocks.tick(cycle + 1);
        bool with_links = tick < next;
        if (with_links) drive_links(tick);
        for (auto &port : writes_) port.drive(cycle);
        spill_write_.drive(cycle), spill_read_.drive(cycle);
        csr_.drive(), command_.drive(cycle);
        event_ready_ = !settings_.event.held(cycle, random_) && !within(settings_.events_held, rank_, cycle);
        clk_ = 0;
        if (own_clock_) link_clk_ = 0;
        hub_->eval();
        record();
        sample(cycle);
        if (with_links) sample_links(tick, cycle);
        if (own_clock_ && with_links) link_clk_ = 1;    // this edge together with the hub's: an evaluation less
        rise();
        while (++tick < next) {
            drive_links(tick);
            link_clk_ = 0;
            hub_->eval();
            sample_links(tick, cycle);
            link_clk_ = 1;
            hub_->eval();
        }
        cycles_++;
    }

    // The clock's rising edge. Of a hub in one piece, whose only trigger it is, the clocked logic and what follows it are
    // called by themselves: eval() would begin with all that follows the inputs, which did not change since.
    void rise() {
#ifdef FLAT
        auto &triggered = hub_->rootp->__VnbaTriggered;
        static_assert(sizeof triggered == sizeof(uint64_t), "one word of triggers");
        triggered[0] = 1;
        Vmoehub___024root___eval_nba(hub_->rootp);
        triggered[0] = 0;
#else
        clk_ = 1;
        hub_->eval();
#endif
    }

    // One cycle of each clock.
    void reset() {
        rst_ = 1;
        clk_ = 0;
        if (own_clock_) link_rst_ = 1, link_clk_ = 0;
        hub_->eval();
        record();
        clk_ = 1;
        if (own_clock_) link_clk_ = 1;
        hub_->eval();
        rst_ = 0;
        if (own_clock_) link_rst_ = 0;
        cleared_seen_ = false;
    }

    void drive_links(uint64_t tick) {
        for (auto &link : link_out) link.drive(tick);
        for (auto &link : link_in) link.drive(tick);
    }

    void sample_links(uint64_t tick, uint64_t cycle) {
        uint32_t *bin = bin_of(cycle);
        for (unsigned n = 0; n < settings_.links; n++) {
            bool sent = link_out[n].sample(tick, cycle), received = link_in[n].sample(cycle);
            if (!bin) continue;
            unsigned use = sent ? LinkUse::SENT : link_out[n].blocked() ? LinkUse::WIRE : idle_[n / slice_links_];
            bin[1 + n * (1 + LINK_USES)] += received;
            bin[2 + n * (1 + LINK_USES) + use]++;
        }
    }

    // The record of this cycle's bin; null before the first one.
    uint32_t *bin_of(uint64_t cycle) {
        if (cycle < bins_from_) return nullptr;
        size_t size = 1 + settings_.links * (1 + LINK_USES), at = (cycle - bins_from_) / settings_.bin * size;
        if (bins.size() < at + size) bins.resize(at + size, 0);
        return &bins[at];
    }

    // Why a link of this lane without a flit has none in this cycle.
    unsigned idle_use(unsigned lane) const {
        uint64_t pool = pools_[lane].get(), sent = 0;
        if (pool_counts::stall_credit.get(pool)) return LinkUse::CREDIT;
        if (pool_counts::stall_pool.get(pool) || lanes_[lane].held_back) return LinkUse::ROOM;
        for (unsigned n = 0; n < slice_links_; n++) sent += link_out[lane * slice_links_ + n].bytes;
        if (lanes_[lane].busy() || lanes_[lane].remote_bytes > sent) return LinkUse::INSIDE;
        for (unsigned n : storing_)
            if (threads[n].stores_left()) return LinkUse::SOFTWARE;
        return expert_.working() ? LinkUse::EXPERT : LinkUse::NOTHING;
    }

    // All pins but the clock, at the sampling point: what sim/cocotb/system/replay.py plays and compares.
    void record() {
        if (!recording_) return;
        uint8_t bytes[64];
        for (size_t n = 1; n < pins_.size(); n++) {
            size_t count = (pins_[n].bits() + 7) / 8;
            pins_[n].read(bytes, count);
            std::fwrite(bytes, 1, count, recording_);
        }
    }

    void sample(uint64_t cycle) {
        if (!cleared_seen_ && cleared_) cleared_seen_ = true, cleared_cycle_ = cycle;
        uint64_t written = arena_.written;
        for (auto &lane : lanes_) lane.sample(cycle);
        for (auto &port : writes_) port.sample(cycle);
        spill_write_.sample(cycle), spill_read_.sample(cycle);
        csr_.sample(), command_.sample();
        if (event_valid_ && event_ready_) event(cycle);
        if (alloc_en_)
            allocs_.add({cycle, static_cast<uint32_t>(alloc_rowid_.get()), static_cast<uint32_t>(alloc_slot_.get()),
                         static_cast<uint16_t>(alloc_region_.get()), static_cast<uint8_t>(alloc_bank_.get()),
                         static_cast<uint8_t>(alloc_overflow_.get()), {}});
        irq_cycles_ += irq_.get();
        if (uint32_t *bin = bin_of(cycle)) {
            *bin += static_cast<uint32_t>(arena_.written - written);
            for (unsigned lane = 0; lane < settings_.lanes; lane++) idle_[lane] = idle_use(lane);
        }
    }

    void event(uint64_t cycle) {
        EventRecord record = {};
        record.cycle = cycle;
        record.kind = static_cast<uint8_t>(event_kind_.get()), record.plain = static_cast<uint8_t>(event_plain_.get());
        record.region = static_cast<uint32_t>(event_region_.get()), record.epoch = static_cast<uint8_t>(event_epoch_.get());
        record.group = static_cast<uint32_t>(event_group_.get()), record.rows = static_cast<uint32_t>(event_rows_.get());
        record.status = static_cast<uint8_t>(event_status_.get()), record.refused = static_cast<uint8_t>(event_refused_.get());
        events_.add(record);
        counts_[(record.kind & 3) + 4 * record.plain]++;
        if (record.kind && !record.plain) ends_[end_of(record.region, record.epoch)]++;
        if (record.kind == EventKind::READY && !record.plain && record.region < regions_.size() && regions_[record.region].used)
            expert_.ready(cycle, regions_[record.region], record.epoch & 1, record.group, record.rows);
    }

    const Settings &settings_;
    unsigned rank_;
    Random random_;
    VerilatedContext context_;
    std::unique_ptr<Vmoehub> hub_;
    PinTable pin_;
    MemoryModel memory_model_;
    Arena arena_;
    std::vector<uint8_t> payload_;
    std::vector<RegionPlace> regions_;
    std::vector<LaneStores> lanes_;
    std::vector<WritePort> writes_;
    WritePort spill_write_;
    ReadPort spill_read_;
    CsrMaster csr_;
    CommandPort command_;
    Expert expert_;
    Machine machine_;
    Log<EventRecord> events_;
    Log<AllocRecord> allocs_;
    Log<PacketRecord> packets_;
    Log<RefusalRecord> refusals_;
    Log<ReadRecord> reads_;
    Log<IssueRecord> issues_;
    Log<StoreRecord> stores_;
    Log<CommandRecord> commands_;
    Log<BeatRecord> beats_;
    Log<PacketRecord> sent_;
    static constexpr uint64_t NEVER = ~0ull;
    std::vector<Pin> pools_;                // of a lane's slice: strobes of its packet manager
    std::vector<unsigned> idle_, storing_;  // LinkUse of a lane's idle links in this cycle; threads with stores
    unsigned slice_links_ = 1;
    uint64_t bins_from_ = 0;
    std::map<uint64_t, uint64_t> ends_;
    std::set<uint64_t> marks_;
    Pin clk_, rst_, cleared_, irq_, event_valid_, event_ready_, event_kind_, event_plain_, event_region_, event_epoch_, event_group_;
    Pin event_rows_, event_status_, event_refused_, alloc_en_, alloc_region_, alloc_bank_, alloc_rowid_, alloc_slot_, alloc_overflow_;
    uint64_t counts_[8] = {0}, cycles_ = 0, irq_cycles_ = 0, cleared_cycle_ = 0, dead_from_ = ~0ull, reset_from_ = ~0ull - 8;
    bool dead_ = false, cleared_seen_ = false, own_clock_ = false;
    Pin link_clk_, link_rst_;
    std::vector<Pin> pins_;
    std::FILE *recording_ = nullptr;
};
