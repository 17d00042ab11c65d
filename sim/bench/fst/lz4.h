// SPDX-License-Identifier: Apache-2.0
// What Verilator's FST writer calls of LZ4, so that waves need no library of the system: the block
// is one run of literals, which every reader of LZ4 takes; nothing is compressed.
#ifndef MOE_HUB_LZ4_H
#define MOE_HUB_LZ4_H

#include <cstring>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

inline int LZ4_compress_default(const char* from, char* to, int size, int) {
    char* at = to;
    if (size < 15) {
        *at++ = static_cast<char>(size << 4);
    } else {
        *at++ = static_cast<char>(0xf0);
        int rest = size - 15;
        for (; rest >= 255; rest -= 255) *at++ = static_cast<char>(255);
        *at++ = static_cast<char>(rest);
    }
    std::memcpy(at, from, size);
    return static_cast<int>(at - to) + size;
}

#endif
