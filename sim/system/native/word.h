// SPDX-License-Identifier: Apache-2.0
// Fields of words and flits: what the generated formats.h is written in.
#pragma once
#include <cstdint>

struct Flit { uint64_t low, high; };

// Bits low .. low + width - 1 of a 64-bit word or of a 128-bit flit; width is at most 63.
struct Field {
    unsigned low, width;

    constexpr uint64_t mask() const { return (1ull << width) - 1; }
    constexpr bool fits(uint64_t value) const { return value <= mask(); }
    constexpr uint64_t wrap(uint64_t value) const { return value & mask(); }

    constexpr uint64_t get(uint64_t word) const { return word >> low & mask(); }
    constexpr uint64_t put(uint64_t value) const { return wrap(value) << low; }
    constexpr uint64_t set(uint64_t word, uint64_t value) const { return (word & ~put(~0ull)) | put(value); }

    constexpr uint64_t get(const Flit &flit) const {
        if (low >= 64) return flit.high >> (low - 64) & mask();
        uint64_t above = low ? flit.high << (64 - low) : 0;
        return (flit.low >> low | above) & mask();
    }
    constexpr void set(Flit &flit, uint64_t value) const {
        value = wrap(value);
        if (low >= 64) {
            flit.high = (flit.high & ~(mask() << (low - 64))) | value << (low - 64);
            return;
        }
        flit.low = (flit.low & ~(mask() << low)) | value << low;
        if (low + width > 64) flit.high = (flit.high & ~(mask() >> (64 - low))) | value >> (64 - low);
    }
};
