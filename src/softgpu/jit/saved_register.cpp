#include "softgpu/jit/saved_register.h"

#include <bit>
#include <cstring>

#include "softgpu/exec/program/lowered.h"

namespace softgpu::jit {
namespace {

template <class T>
void spread(std::byte* registers, const SavedRegister& saved, uint32_t lanes) {
  T base;
  std::memcpy(&base, registers + saved.stage, sizeof(T));
  auto* const home = reinterpret_cast<T*>(registers + saved.home);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    home[lane] = static_cast<T>(base + static_cast<T>(saved.offsets ? (*saved.offsets)[lane] : 0));
  }
}

template <class T>
bool collect(std::byte* registers, const SavedRegister& saved, uint32_t lanes) {
  const auto* const home = reinterpret_cast<const T*>(registers + saved.home);
  auto base_of = [&](uint32_t lane) {
    return static_cast<T>(home[lane] - static_cast<T>(saved.offsets ? (*saved.offsets)[lane] : 0));
  };
  const T base = base_of(static_cast<uint32_t>(std::countr_zero(lanes)));
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    if (base_of(static_cast<uint32_t>(std::countr_zero(rest))) != base) return false;
  }
  std::memcpy(registers + saved.stage, &base, sizeof(T));
  return true;
}

uint32_t word_at(const std::byte* place) {
  uint32_t word;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

}  // namespace

void bring_home(std::byte* registers, const SavedRegister& saved, uint32_t lanes) {
  if (saved.size == 'p') {
    const uint32_t old = word_at(registers + saved.home), mine = word_at(registers + saved.stage);
    const uint32_t word = (old & ~lanes) | (mine & lanes);
    std::memcpy(registers + saved.home, &word, sizeof(word));
  } else if (!saved.scalar) {
    return;  // is there
  } else if (saved.size == 'h') {
    spread<uint16_t>(registers, saved, lanes);
  } else if (saved.size == 'w') {
    spread<uint32_t>(registers, saved, lanes);
  } else {
    spread<uint64_t>(registers, saved, lanes);
  }
}

bool put_on_stage(std::byte* registers, const SavedRegister& saved, uint32_t lanes) {
  if (saved.size == 'p') {
    uint32_t word = word_at(registers + saved.home);
    if (saved.scalar) {
      if ((word & lanes) != 0 && (word & lanes) != lanes) return false;
      word = (word & lanes) != 0 ? ~0u : 0u;
    }
    std::memcpy(registers + saved.stage, &word, sizeof(word));
    return true;
  }
  if (!saved.scalar) return true;
  if (saved.size == 'h') return collect<uint16_t>(registers, saved, lanes);
  if (saved.size == 'w') return collect<uint32_t>(registers, saved, lanes);
  return collect<uint64_t>(registers, saved, lanes);
}

}  // namespace softgpu::jit
