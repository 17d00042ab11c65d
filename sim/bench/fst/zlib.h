// SPDX-License-Identifier: Apache-2.0
// What Verilator's FST writer calls of zlib, so that waves need no library of the system. The format
// keeps a block as it is when compression makes it no smaller, so here it never does.
#ifndef MOE_HUB_ZLIB_H
#define MOE_HUB_ZLIB_H

#include <cstring>

using Bytef = unsigned char;
using uLong = unsigned long;
using uLongf = unsigned long;
constexpr int Z_OK = 0;

inline uLong compressBound(uLong size) { return size; }

inline int compress2(Bytef* to, uLongf* length, const Bytef* from, uLong size, int) {
    std::memcpy(to, from, size);
    *length = size;
    return Z_OK;
}

#endif
