// SPDX-License-Identifier: Apache-2.0
// Device memory of one rank: a sparse file as the image, one AXI4 write port per slice, one 64-bit AXI4 port for the spill
// table and flags. A write changes the image only when its answer is taken: READY before the acknowledgement would show.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "formats.h"
#include "pins.h"
#include "support.h"

// Image of one rank's memory and the map of bytes written through the data ports.
class Arena {
  public:
    void open(const std::string &path, uint64_t size) {
        size_ = size;
        int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) throw std::runtime_error("cannot make " + path);
        bytes_ = static_cast<uint8_t *>(map(file, size));
        ::close(file);
        written_ = static_cast<uint16_t *>(map(-1, size / 8));
    }
    ~Arena() {
        if (bytes_) ::munmap(bytes_, size_);
        if (written_) ::munmap(written_, size_ / 8);
    }

    bool holds(uint64_t addr, uint64_t bytes) const { return addr + bytes <= size_ && addr <= size_; }
    const uint8_t *at(uint64_t addr) const { return bytes_ + addr; }
    uint8_t *at(uint64_t addr) { return bytes_ + addr; }
    uint64_t word(uint64_t addr) const {
        uint64_t value = 0;
        if (holds(addr, 8)) std::memcpy(&value, bytes_ + addr, 8);
        return value;
    }

    // One 16-byte beat with strobes: counts every byte, and every byte that had been written before.
    void write(uint64_t addr, const uint8_t *data, uint16_t strobe) {
        uint16_t &seen = written_[addr / 16];
        rewritten += __builtin_popcount(seen & strobe);
        written += __builtin_popcount(strobe);
        seen |= strobe;
        if (strobe == 0xFFFF) {
            std::memcpy(bytes_ + addr, data, 16);
            return;
        }
        for (int n = 0; n < 16; n++)
            if (strobe >> n & 1) bytes_[addr + n] = data[n];
    }

    // The count starts anew; the bytes stay.
    void forget() {
        std::memset(written_, 0, size_ / 8);
        written = rewritten = 0;
    }

    uint64_t written = 0, rewritten = 0;

  private:
    static void *map(int file, uint64_t size) {
        int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
        void *where = ::mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, flags, file, 0);
        if (where == MAP_FAILED) throw std::runtime_error("cannot map memory");
        return where;
    }
    uint8_t *bytes_ = nullptr;
    uint16_t *written_ = nullptr;
    uint64_t size_ = 0;
};

struct MemoryModel {            // behaviour shared by the ports of a rank
    unsigned latency = 20;      // cycles from the last beat to the answer
    unsigned jitter = 0;        // extra cycles, 0..jitter at random
    Stall stall;                // of awready, wready and bvalid
    uint64_t stall_from = 0, stall_to = 0;              // cycles in which memory does nothing at all
    std::vector<std::pair<uint64_t, uint64_t>> errors;  // address ranges that answer SLVERR and keep nothing
    uint64_t spill_low = 0, spill_high = ~0ull;         // what the 64-bit port may touch
    bool frozen(uint64_t cycle) const { return cycle >= stall_from && cycle < stall_to; }
    bool fails(uint64_t addr) const {
        for (auto &range : errors)
            if (addr >= range.first && addr < range.second) return true;
        return false;
    }
};

// AXI4 write slave of any width; counts what breaks the protocol or leaves the memory in `bad`. Eight bytes: spill table and
// flags, more: data.
class WritePort {
  public:
    void connect(const PinTable &pin, const std::string &name, Arena *arena, const MemoryModel *model, uint64_t seed,
                 Log<BeatRecord> *watch = nullptr, unsigned number = 0) {
        arena_ = arena, model_ = model, random_ = Random(seed), watch_ = watch, number_ = number;
        awaddr_ = pin(name + "_awaddr"), awlen_ = pin(name + "_awlen"), awvalid_ = pin(name + "_awvalid");
        awready_ = pin(name + "_awready"), awcache_ = pin(name + "_awcache");
        wdata_ = pin(name + "_wdata"), wstrb_ = pin(name + "_wstrb"), wlast_ = pin(name + "_wlast");
        wvalid_ = pin(name + "_wvalid"), wready_ = pin(name + "_wready");
        bresp_ = pin(name + "_bresp"), bvalid_ = pin(name + "_bvalid"), bready_ = pin(name + "_bready");
        bytes_ = wstrb_.bits();
        if (bytes_ > MOST) throw std::runtime_error(name + " is too wide");
    }

    void drive(uint64_t cycle) {
        bool frozen = model_->frozen(cycle);
        awready_ = !frozen && !model_->stall.held(cycle, random_);
        wready_ = !frozen && !model_->stall.held(cycle + 1, random_);
        if (!answering_) {
            answering_ = !pending_.empty() && pending_.front().due <= cycle && !frozen && !model_->stall.held(cycle + 2, random_);
            if (answering_) bresp_ = pending_.front().error ? 2 : 0;
            bvalid_ = answering_;
        }
    }

    void sample(uint64_t cycle) {
        if (answering_ && bready_) {
            if (watch_) show(pending_.front(), cycle);
            apply(pending_.front());
            last_answer = cycle;
            pending_.pop_front();
            answering_ = false;
        }
        if (awvalid_ && awready_) {
            addresses_.push_back({awaddr_.get(), static_cast<unsigned>(awlen_.get()) + 1});
            if (awcache_.get() != 0) bad++;
            if (first_write == 0) first_write = cycle;
            last_write = cycle;
            writes++;
        }
        if (wvalid_ && wready_) {
            Beat beat = {};
            wdata_.read(beat.data, bytes_);
            wstrb_.read(beat.strobe, bytes_ / 8);
            beats_.push_back(beat);
            if (wlast_) lengths_.push_back(gathered_ + 1), gathered_ = 0;
            else gathered_++;
        }
        while (!addresses_.empty() && !lengths_.empty()) start(cycle);
    }

    bool idle() const { return pending_.empty() && addresses_.empty() && beats_.empty(); }
    uint64_t writes = 0, bad = 0, failed = 0, first_write = 0, last_write = 0, last_answer = 0;

  private:
    static constexpr unsigned MOST = 128, UNIT = 16;
    struct Beat {
        uint8_t data[MOST], strobe[MOST / 8];
        uint16_t strobes(unsigned at) const { return static_cast<uint16_t>(strobe[at / 8] | strobe[at / 8 + 1] << 8); }
    };
    struct Address { uint64_t addr; unsigned beats; };
    struct Write { uint64_t addr, due; bool error; std::vector<Beat> beats; };

    void start(uint64_t cycle) {
        Address address = addresses_.front();
        unsigned beats = lengths_.front();
        addresses_.pop_front(), lengths_.pop_front();
        uint64_t end = address.addr + uint64_t(beats) * bytes_;
        bool outside = !arena_->holds(address.addr, uint64_t(beats) * bytes_) ||
                       (bytes_ == 8 && (address.addr < model_->spill_low || end > model_->spill_high));
        if (beats != address.beats || address.addr % bytes_ != 0 || (address.addr >> 12) != ((end - 1) >> 12) || outside) bad++;
        unsigned wait = model_->latency + (model_->jitter ? random_.below(model_->jitter + 1) : 0);
        uint64_t due = cycle + wait;
        if (!pending_.empty() && pending_.back().due > due) due = pending_.back().due;
        bool error = outside || model_->fails(address.addr);
        failed += error;
        pending_.push_back({address.addr, due, error, {beats_.begin(), beats_.begin() + beats}});
        beats_.erase(beats_.begin(), beats_.begin() + beats);
    }

    // A record per 16-byte unit with a strobe.
    void show(const Write &write, uint64_t cycle) {
        uint64_t addr = write.addr;
        for (auto &beat : write.beats) {
            for (unsigned at = 0; at < bytes_; at += UNIT) {
                BeatRecord record = {};
                record.answered = cycle, record.addr = addr + at, record.strobe = beat.strobes(at), record.error = write.error;
                record.port = static_cast<uint16_t>(number_);
                std::memcpy(record.data, beat.data + at, std::min(bytes_, UNIT));
                if (record.strobe) watch_->add(record);
            }
            addr += bytes_;
        }
    }

    void apply(const Write &write) {
        if (write.error) return;
        uint64_t addr = write.addr;
        for (auto &beat : write.beats) {
            if (bytes_ >= UNIT) {
                for (unsigned at = 0; at < bytes_; at += UNIT) arena_->write(addr + at, beat.data + at, beat.strobes(at));
            } else {
                for (unsigned n = 0; n < bytes_; n++)
                    if (beat.strobes(0) >> n & 1) *arena_->at(addr + n) = beat.data[n];
            }
            addr += bytes_;
        }
    }

    Arena *arena_ = nullptr;
    const MemoryModel *model_ = nullptr;
    Random random_;
    Log<BeatRecord> *watch_ = nullptr;
    unsigned number_ = 0, bytes_ = 0;
    Pin awaddr_, awlen_, awvalid_, awready_, awcache_, wdata_, wstrb_, wlast_, wvalid_, wready_, bresp_, bvalid_, bready_;
    std::deque<Address> addresses_;
    std::deque<Beat> beats_;
    std::deque<unsigned> lengths_;
    std::deque<Write> pending_;
    unsigned gathered_ = 0;
    bool answering_ = false;
};

// Read half of the spill port: 64-bit reads with the same latency, in order.
class ReadPort {
  public:
    void connect(const PinTable &pin, const std::string &name, Arena *arena, const MemoryModel *model, uint64_t seed) {
        arena_ = arena, model_ = model, random_ = Random(seed);
        araddr_ = pin(name + "_araddr"), arlen_ = pin(name + "_arlen"), arvalid_ = pin(name + "_arvalid");
        arready_ = pin(name + "_arready"), rdata_ = pin(name + "_rdata"), rresp_ = pin(name + "_rresp");
        rlast_ = pin(name + "_rlast"), rvalid_ = pin(name + "_rvalid"), rready_ = pin(name + "_rready");
    }

    void drive(uint64_t cycle) {
        bool frozen = model_->frozen(cycle);
        arready_ = !frozen && !model_->stall.held(cycle, random_);
        if (!answering_) {
            answering_ = !pending_.empty() && pending_.front().due <= cycle && !frozen && !model_->stall.held(cycle + 1, random_);
            if (answering_) {
                Read &read = pending_.front();
                bool error = !arena_->holds(read.addr, 8) || model_->fails(read.addr);
                rresp_ = error ? 2 : 0;
                rdata_ = arena_->word(read.addr);
                rlast_ = read.last;
            }
            rvalid_ = answering_;
        }
    }

    void sample(uint64_t cycle) {
        if (answering_ && rready_) pending_.pop_front(), answering_ = false;
        if (!(arvalid_ && arready_)) return;
        uint64_t addr = araddr_.get();
        unsigned beats = static_cast<unsigned>(arlen_.get()) + 1;
        if (addr % 8 || !arena_->holds(addr, beats * 8ull) || addr < model_->spill_low || addr >= model_->spill_high) bad++;
        for (unsigned n = 0; n < beats; n++)
            pending_.push_back({addr + n * 8ull, cycle + model_->latency + n, n + 1 == beats});
        reads++;
    }

    uint64_t reads = 0, bad = 0;

  private:
    struct Read { uint64_t addr, due; bool last; };
    Arena *arena_ = nullptr;
    const MemoryModel *model_ = nullptr;
    Random random_;
    Pin araddr_, arlen_, arvalid_, arready_, rdata_, rresp_, rlast_, rvalid_, rready_;
    std::deque<Read> pending_;
    bool answering_ = false;
};
