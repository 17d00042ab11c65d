// SPDX-License-Identifier: Apache-2.0
// Ports of the verilated hub by name, whatever their width: the generated table (hub_pins.h) plus typed access.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// One port of the model. Verilator keeps it in 1, 2, 4 or 8 bytes, wider ones in an array of 32-bit words: all little endian.
class Pin {
  public:
    Pin() = default;
    Pin(void *where, unsigned bits) : where_(where), bits_(bits) {}

    unsigned bits() const { return bits_; }

    uint64_t get() const {
        if (bits_ <= 8) return *static_cast<uint8_t *>(where_);
        if (bits_ <= 16) return *static_cast<uint16_t *>(where_);
        if (bits_ <= 32) return *static_cast<uint32_t *>(where_);
        return *static_cast<uint64_t *>(where_);
    }

    void set(uint64_t value) {
        if (bits_ <= 8) *static_cast<uint8_t *>(where_) = static_cast<uint8_t>(value);
        else if (bits_ <= 16) *static_cast<uint16_t *>(where_) = static_cast<uint16_t>(value);
        else if (bits_ <= 32) *static_cast<uint32_t *>(where_) = static_cast<uint32_t>(value);
        else *static_cast<uint64_t *>(where_) = value;
    }

    explicit operator bool() const { return get() != 0; }
    Pin &operator=(uint64_t value) { set(value); return *this; }
    Pin(const Pin &) = default;
    Pin &operator=(const Pin &) = default;

    void read(void *to, size_t bytes) const { std::memcpy(to, where_, bytes); }
    void write(const void *from, size_t bytes) { std::memcpy(where_, from, bytes); }
    bool bit(unsigned n) const { return static_cast<uint8_t *>(where_)[n / 8] >> (n % 8) & 1; }

  private:
    void *where_ = nullptr;
    unsigned bits_ = 0;
};

// Name -> Pin. Asking for a port that the Verilog does not have ends the run with its name.
class PinTable {
  public:
    void add(const char *name, void *where, unsigned bits) {
        pins_[name] = Pin(where, bits);
        order_.push_back(pins_[name]);
    }
    // A signal inside the hub: to look at, not recorded.
    void add_inner(const char *name, void *where, unsigned bits) { inner_[name] = Pin(where, bits); }
    Pin inner(const std::string &name) const { return inner_.at(name); }
    const std::vector<Pin> &in_order() const { return order_; }

    Pin operator()(const std::string &name) const {
        auto found = pins_.find(name);
        if (found == pins_.end()) throw std::runtime_error("the hub has no port " + name);
        return found->second;
    }
    bool has(const std::string &name) const { return pins_.count(name) != 0; }

  private:
    std::map<std::string, Pin> pins_, inner_;
    std::vector<Pin> order_;
};
