// Numbers that depend on nothing but their seed (SplitMix64).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace softgpu::differential {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // 0 .. end - 1
  uint64_t below(uint64_t end) { return next() % end; }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <class T>
  T one_of(std::initializer_list<T> from) {
    return from.begin()[below(from.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace softgpu::differential
