// SPDX-License-Identifier: Apache-2.0
// What all parts of the harness use: logs, pseudo-random numbers, stall patterns.
#pragma once
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

// Append-only file of records, written in blocks.
template <typename T> class Log {
  public:
    Log() = default;
    Log(const Log &) = delete;
    ~Log() { close(); }

    void open(const std::string &path) {
        file_ = std::fopen(path.c_str(), "wb");
        if (!file_) throw std::runtime_error("cannot write " + path);
    }
    void add(const T &record) {
        buffer_.push_back(record);
        if (buffer_.size() >= 4096) flush();
    }
    void close() {
        if (!file_) return;
        flush();
        std::fclose(file_);
        file_ = nullptr;
    }

  private:
    void flush() {
        if (std::fwrite(buffer_.data(), sizeof(T), buffer_.size(), file_) != buffer_.size())
            throw std::runtime_error("log: disk full?");
        buffer_.clear();
    }
    std::FILE *file_ = nullptr;
    std::vector<T> buffer_;
};

// Seeded pseudo-random numbers (xorshift64*), one generator per purpose and rank: results do not depend on threads.
class Random {
  public:
    explicit Random(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15ull + 0x1234567) { next(); }
    uint32_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>(state_ * 0x2545F4914F6CDD1Dull >> 32);
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(uint64_t(next()) * n >> 32); }

  private:
    uint64_t state_;
};

// Stall pattern of a handshake: percent of cycles held back, at random, or in a cycle of 4 (pattern 1).
struct Stall {
    int pattern = 0;    // 0 none, 1 cyclic (one cycle in four is open), 2 random
    int percent = 0;
    bool held(uint64_t cycle, Random &random) const {
        if (pattern == 0) return false;
        if (pattern == 1) return cycle % 4 != 3;
        return static_cast<int>(random.below(100)) < percent;
    }
};
