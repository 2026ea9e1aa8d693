#include "softgpu/exec/program/checked_access.h"

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <string>

#include "softgpu/exec/checks/block_checks.h"
#include "softgpu/exec/checks/fault_text.h"
#include "softgpu/exec/program/memory_operand.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

using Step = AccessKind::Step;

template <class T>
T lane_value(const Warp& warp, uint32_t offset, uint32_t lane) {
  T value;
  std::memcpy(&value, warp.registers + offset + lane * sizeof(T), sizeof(T));
  return value;
}

template <class F>
void each_lane(uint32_t mask, F f) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) f(static_cast<uint32_t>(std::countr_zero(rest)));
}

// One side of an access of one lane.
struct Place {
  bool is_shared = false, is_local = false;
  uint64_t address = 0;  // shared memory: the offset in it
};

Place place_of(const Warp& warp, uint32_t operand, uint32_t how, int64_t immediate, uint32_t lane) {
  Place place;
  if (how & memory_operand::no_base) {
    place.address = static_cast<uint64_t>(immediate);
  } else if (how & memory_operand::address32) {
    place.address = lane_value<uint32_t>(warp, operand, lane) + static_cast<uint32_t>(immediate);
    place.address &= 0xffffffffu;
  } else {
    place.address = lane_value<uint64_t>(warp, operand, lane) + static_cast<uint64_t>(immediate);
  }
  const uint32_t space = how & memory_operand::space_mask;
  place.is_shared = space == memory_operand::shared;
  place.is_local = space == memory_operand::local;
  if (space != memory_operand::flat) return place;
  if (place.address - warp.shared_base < warp.shared_bytes) {
    place.is_shared = true;
    place.address -= warp.shared_base;
  } else {
    place.is_local = place.address - warp.local_base < warp.local_stride * warp_lanes;
  }
  return place;
}

// Whether the value that the lane stores differs, at this byte of it, from what memory holds.
bool changes(const Warp& warp, const Instruction& in, const AccessKind& kind, uint32_t lane, uint64_t offset,
             uint32_t byte) {
  if (kind.step != Step::store) return true;
  const uint32_t element = byte / kind.element_bytes;
  const uint32_t value = kind.vector ? in.list[element] : in.op[kind.value_operand];
  const std::byte stored = warp.registers[value + lane * kind.register_bytes + byte % kind.element_bytes];
  return stored != *reinterpret_cast<const std::byte*>(warp.shared_base + offset);
}

class Checked {
 public:
  Checked(Warp& warp, const Instruction& in, const CheckedAccess& access)
      : warp_(warp), in_(in), access_(access), checks_(*warp.block->checks), tested_(warp.mask) {}

  void look() {
    if (checks_.checks.race) checks_.races.advance();
    const AccessKind& kind = access_.kind;
    const uint32_t how = in_.aux & ((1u << memory_operand::address_bits) - 1);
    switch (kind.step) {
      case Step::copy: {
        const uint32_t bytes = in_.aux >> 8;
        each_lane(warp_.mask, [&](uint32_t lane) {
          const uint32_t wanted = std::min(bytes, lane_value<uint32_t>(warp_, in_.op[2], lane));
          side(lane, place_of(warp_, in_.op[1], in_.aux >> 4 & 15, 0, lane), wanted, false, false);
          side(lane, place_of(warp_, in_.op[0], how, 0, lane), bytes, true, false);
        });
        return;
      }
      case Step::matrix_load: {
        if ((warp_.live & ~warp_.mask) != 0 && !warp_.must_converge_now) return;  // it will be executed again
        const uint32_t used = in_.list_size >= 4 ? full_mask : (uint32_t{1} << (8 * in_.list_size)) - 1;
        each_lane(warp_.mask & used, [&](uint32_t lane) {
          side(lane, place_of(warp_, in_.op[0], how, 0, lane), 16, false, false);
        });
        return;
      }
      case Step::load:
      case Step::store:
      case Step::atomic: {
        const uint32_t bytes = access_bytes(kind, in_);
        const bool strong = access_.strong || kind.step == Step::atomic;
        each_lane(warp_.mask, [&](uint32_t lane) {
          const Place place = place_of(warp_, in_.op[kind.address_operand], how, in_.immediate, lane);
          if (strong && checks_.checks.race) synchronise(place, lane, kind.step);
          if (kind.step == Step::atomic && checks_.checks.initialised && place.is_shared) {
            must_be_written(lane, place, bytes);
          }
          side(lane, place, bytes, kind.step != Step::load, strong);
        });
        return;
      }
      case Step::barrier_object:
      case Step::arrive:
      case Step::test:
        each_lane(warp_.mask, [&](uint32_t lane) {
          const Place place = place_of(warp_, in_.op[kind.address_operand], how, 0, lane);
          const bool initialises = kind.step == Step::barrier_object;
          side(lane, place, 8, initialises, !initialises);
          if (kind.step == Step::arrive && checks_.checks.race)
            checks_.races.release(key(place), thread(lane));
        });
        return;
      case Step::bulk:
        each_lane(warp_.mask, [&](uint32_t lane) {
          const auto bytes = lane_value<uint32_t>(warp_, in_.op[2], lane);
          outside_of_shared(lane, place_of(warp_, in_.op[0], how, 0, lane), bytes);
          outside_of_shared(lane, place_of(warp_, in_.op[1], in_.aux >> 4 & 15, 0, lane), bytes);
        });
        all_written();
        return;
      case Step::wide:
        all_written();
        return;
      case Step::none:
        return;
    }
  }

  // After the test of an mbarrier: a lane that has passed has seen the arrivals.
  void look_at_result() {
    if (access_.kind.step != Step::test || !checks_.checks.race) return;
    const uint32_t passed = lane_value<uint32_t>(warp_, in_.op[0], 0) & tested_;
    each_lane(passed, [&](uint32_t lane) {
      checks_.races.acquire(
          key(place_of(warp_, in_.op[1], in_.aux & ((1u << memory_operand::address_bits) - 1), 0, lane)),
          thread(lane));
    });
  }

 private:
  [[nodiscard]] uint32_t thread(uint32_t lane) const { return warp_.index * warp_lanes + lane; }
  static uint64_t key(const Place& place) {
    return place.address & ~uint64_t{7};  // offsets in shared memory and host addresses do not meet
  }

  // A strong access is one on which threads may agree about what came before.
  void synchronise(const Place& place, uint32_t lane, Step step) {
    if (place.is_local) return;
    if (step != Step::store) checks_.races.acquire(key(place), thread(lane));
    if (step == Step::load) return;
    checks_.races.release(key(place), thread(lane));
    checks_.races.advance();
  }

  void must_be_written(uint32_t lane, const Place& place, uint32_t bytes) {
    if (place.address + bytes > warp_.shared_bytes) return;  // the access itself will fault
    if (const auto hole = checks_.first_unwritten(place.address, bytes)) {
      report_unwritten(warp_, in_, lane, *hole, bytes);
      leave();
    }
  }

  void all_written() {
    if (checks_.checks.initialised) checks_.written(0, static_cast<uint32_t>(warp_.shared_bytes));
  }

  void outside_of_shared(uint32_t lane, const Place& place, uint32_t bytes) {
    if (!checks_.checks.memory || place.is_shared || place.is_local || bytes == 0) return;
    if (!address_is_in_known_memory(warp_, place.address, bytes)) {
      raise_fault(warp_, in_, Fault::illegal_address, "illegal address", place.address, lane);
    }
  }

  void side(uint32_t lane, const Place& place, uint32_t bytes, bool writes, bool strong) {
    if (place.is_local || bytes == 0) return;
    if (!place.is_shared) return outside_of_shared(lane, place, bytes);
    if (place.address >= warp_.shared_bytes || warp_.shared_bytes - place.address < bytes) return;
    if (checks_.checks.initialised) {
      if (writes)
        checks_.written(place.address, bytes);
      else
        must_be_written(lane, place, bytes);
    }
    if (!checks_.checks.race) return;
    const auto race = checks_.races.access(
        {thread(lane), static_cast<uint32_t>(place.address), bytes, &in_, writes, strong});
    if (!race) return;
    // Two threads that write the same value do not harm each other.
    if (writes && race->wrote && access_.kind.step == Step::store && !differs(lane, place, bytes, *race))
      return;
    report_race(warp_, in_, lane, writes, *race);
    leave();
  }

  // Another lane of this very instruction has not written yet; then its register is compared.
  [[nodiscard]] bool differs(uint32_t lane, const Place& place, uint32_t bytes,
                             const RaceDetector::Race& race) const {
    if (race.together) {
      const uint32_t other = race.thread % warp_lanes, size = access_.kind.register_bytes;
      const uint32_t count = access_.kind.vector ? in_.list_size : 1;
      for (uint32_t k = 0; k < count; ++k) {
        const uint32_t value = access_.kind.vector ? in_.list[k] : in_.op[access_.kind.value_operand];
        if (std::memcmp(warp_.registers + value + lane * size, warp_.registers + value + other * size,
                        access_.kind.element_bytes) != 0) {
          return true;
        }
      }
      return false;
    }
    for (uint32_t byte = 0; byte < bytes; ++byte) {
      if (changes(warp_, in_, access_.kind, lane, place.address + byte, byte)) return true;
    }
    return false;
  }

  [[noreturn]] static void leave() { siglongjmp(*fault_guard().escape, 1); }

  Warp& warp_;
  const Instruction& in_;
  const CheckedAccess& access_;
  BlockChecks& checks_;
  const uint32_t tested_;  // lanes that execute the instruction
};

}  // namespace

bool is_strong(std::string_view opcode) {
  for (const std::string_view order :
       {".volatile", ".relaxed", ".acquire", ".release", ".acq_rel", ".mmio"}) {
    const size_t at = opcode.find(order);
    if (at == std::string_view::npos) continue;
    const size_t end = at + order.size();
    if (end == opcode.size() || opcode[end] == '.') return true;
  }
  return false;
}

void run_checked(Warp& warp, const Instruction& in) {
  const CheckedAccess& access = warp.frame->function->checked[in.op[checked_operand]];
  // The access itself, as it would be without checks.
  Instruction plain = in;
  plain.handler = access.handler;
  plain.op[checked_operand] = 0;
  Checked checked(warp, in, access);
  checked.look();
  access.handler(warp, plain);
  checked.look_at_result();
}

}  // namespace softgpu
