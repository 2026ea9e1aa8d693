// What the threads of a warp do together. Each thread waits at the instruction until all threads that its
// member mask names, and that have not ended, are at the same one with the same mask.
#include <algorithm>
#include <bit>

#include "softgpu/reference/machine.h"

namespace softgpu::reference {

using ptx::Operand;
using ptx::OperandKind;

namespace {

bool has(const Step& step, std::string_view suffix) {
  return std::find(step.suffixes.begin(), step.suffixes.end(), suffix) != step.suffixes.end();
}

template <class F>
void each_member(std::span<Thread> warp, uint32_t members, F use) {
  for (uint32_t lane = 0; lane < warp.size(); ++lane) {
    if ((members >> lane & 1) != 0) use(lane, warp[lane]);
  }
}

}  // namespace

void Machine::do_with_warp(Thread& thread, const Step& step) {
  const std::vector<Operand>& operands = step.syntax->operands;
  if (!has(step, "sync")) refuse(step, "depends on which threads run together");
  const Operand& mask = operands.back();  // of every form the last
  thread.members = static_cast<uint32_t>(value(thread, mask, 32));
  if ((thread.members >> (thread.index % 32) & 1) == 0)
    refuse(step, "the member mask lacks the thread itself");
  thread.state = Thread::State::with_warp;
  thread.waiting = &step;
}

void Machine::do_with_whole_warp(Thread& thread, const Step& step) {
  thread.members = ~uint32_t{0};
  thread.state = Thread::State::with_warp;
  thread.waiting = &step;
}

// Which other threads run at the same time is not said; here none do.
void Machine::do_active_mask(Thread& thread, const Step& step) {
  set(thread, step.syntax->operands.at(0), Bits{1} << (thread.index % 32));
}

bool Machine::complete_warp_instructions() {
  bool completed = false;
  for (size_t first = 0; first < threads_.size(); first += 32) {
    const std::span<Thread> warp(threads_.data() + first, std::min<size_t>(32, threads_.size() - first));
    for (const Thread& thread : warp) {
      if (thread.state != Thread::State::with_warp) continue;
      const uint32_t members = thread.members;
      const Step& step = *thread.waiting;
      if (warp.size() < 32 && members >> warp.size() != 0) refuse(step, "the member mask names no thread");
      bool all_here = true;
      each_member(warp, members, [&](uint32_t, const Thread& other) {
        if (other.state == Thread::State::ended)
          refuse(step, "the member mask names a thread that has ended");
        all_here = all_here && other.state == Thread::State::with_warp && other.waiting == &step &&
                   other.members == members && other.frames.size() == thread.frames.size();
      });
      if (!all_here) continue;
      complete(step, warp, members);
      each_member(warp, members, [](uint32_t, Thread& other) { other.state = Thread::State::ready; });
      completed = true;
    }
  }
  return completed;
}

void Machine::complete(const Step& step, std::span<Thread> warp, uint32_t members) {
  const std::string_view name = step.syntax->opcode;
  const std::vector<Operand>& operands = step.syntax->operands;
  if (name == "bar.warp.sync") return;
  if (name.starts_with("mma")) return complete_mma(step, warp);
  if (name.starts_with("movmatrix")) return complete_movmatrix(step, warp);
  if (name.starts_with("ldmatrix") || name.starts_with("stmatrix")) return complete_matrix_access(step, warp);
  if (name.starts_with("elect")) {  // the manual leaves open which one; here the first
    const auto elected = static_cast<uint32_t>(std::countr_zero(members));
    each_member(warp, members, [&](uint32_t lane, Thread& thread) {
      set(thread, operands[0].elements.at(0), elected);
      set(thread, operands[0].elements.at(1), lane == elected);
    });
    return;
  }
  if (name.starts_with("shfl")) return complete_shuffle(step, warp, members);
  if (name.starts_with("vote")) {
    uint32_t truths = 0;
    each_member(warp, members, [&](uint32_t lane, const Thread& thread) {
      if (predicate(thread, operands.at(1))) truths |= uint32_t{1} << lane;
    });
    const bool all = truths == members, any = truths != 0;
    const Bits result = has(step, "ballot") ? Bits{truths}
                        : has(step, "all")  ? Bits{all}
                        : has(step, "any")  ? Bits{any}
                                            : Bits{all || !any};
    each_member(warp, members, [&](uint32_t, Thread& thread) { set(thread, operands[0], result); });
    return;
  }
  const auto type = number_type(step.suffixes.back());
  if (!type) refuse(step, "type expected");
  std::vector<Bits> values(32);
  each_member(warp, members, [&](uint32_t lane, const Thread& thread) {
    values[lane] = value(thread, operands.at(1), type->bits);
  });
  if (name.starts_with("match")) {
    const Operand& to = operands[0];
    const bool pair = to.kind == OperandKind::pair;
    each_member(warp, members, [&](uint32_t lane, Thread& thread) {
      uint32_t equal = 0;
      each_member(warp, members, [&](uint32_t other, const Thread&) {
        if (values[other] == values[lane]) equal |= uint32_t{1} << other;
      });
      if (has(step, "any")) return set(thread, to, equal);
      set(thread, pair ? to.elements[0] : to, equal == members ? members : 0);
      if (pair) set(thread, to.elements[1], equal == members);
    });
    return;
  }
  // redux.sync.op.type
  if (type->is_float()) {  // as min or max of two at a time
    std::string name = has(step, "min") ? "min" : "max";
    for (const char* const word : {"NaN", "abs"}) {
      if (has(step, word)) name += std::string(".") + word;
    }
    const Operation* const of_two = find_operation(name + ".f32");
    if (of_two == nullptr) refuse(step, "is not in the reference");
    std::optional<Bits> folded;
    each_member(warp, members, [&](uint32_t lane, const Thread&) {
      const Bits pair[2] = {folded.value_or(values[lane]), values[lane]};
      Bits both = 0;
      of_two->evaluate(pair, &both);
      folded = both;
    });
    each_member(warp, members, [&](uint32_t, Thread& thread) { set(thread, operands[0], *folded); });
    return;
  }
  __int128 result = 0;
  bool first = true;
  each_member(warp, members, [&](uint32_t lane, const Thread&) {
    const __int128 v = integer_value(values[lane], *type);
    if (first) {
      result = v;
    } else if (has(step, "add")) {
      result += v;
    } else if (has(step, "min")) {
      result = std::min(result, v);
    } else if (has(step, "max")) {
      result = std::max(result, v);
    } else if (has(step, "and")) {
      result &= v;
    } else if (has(step, "or")) {
      result |= v;
    } else if (has(step, "xor")) {
      result ^= v;
    } else {
      refuse(step, "is not in the reference");
    }
    first = false;
  });
  each_member(warp, members, [&](uint32_t, Thread& thread) {
    set(thread, operands[0], low_bits(static_cast<Bits>(result), 32));
  });
}

// shfl.sync.mode.b32 d[|p], a, b, c, mask. c: where the lane's segment ends, and which bits name the segment.
void Machine::complete_shuffle(const Step& step, std::span<Thread> warp, uint32_t members) {
  const std::vector<Operand>& operands = step.syntax->operands;
  std::vector<Bits> given(32), result(32), valid(32);
  each_member(warp, members,
              [&](uint32_t lane, const Thread& thread) { given[lane] = value(thread, operands.at(1), 32); });
  each_member(warp, members, [&](uint32_t lane, const Thread& thread) {
    const int b = static_cast<int>(value(thread, operands.at(2), 32) & 31);
    const auto c = static_cast<uint32_t>(value(thread, operands.at(3), 32));
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31),
              i = static_cast<int>(lane);
    const int lowest = i & segment, highest = lowest | (clamp & ~segment);
    int from = 0;
    bool inside = false;
    if (has(step, "up")) {
      from = i - b;
      inside = from >= highest;
    } else if (has(step, "down")) {
      from = i + b;
      inside = from <= highest;
    } else if (has(step, "bfly")) {
      from = i ^ b;
      inside = from <= highest;
    } else {
      from = lowest | (b & ~segment);
      inside = from <= highest;
    }
    if (!inside) from = i;
    if (from > 31 || (members >> from & 1) == 0) refuse(step, "reads from a thread that takes no part");
    result[lane] = given[static_cast<size_t>(from)];
    valid[lane] = inside;
  });
  const Operand& to = operands[0];
  const bool pair = to.kind == OperandKind::pair;
  each_member(warp, members, [&](uint32_t lane, Thread& thread) {
    set(thread, pair ? to.elements[0] : to, result[lane]);
    if (pair) set(thread, to.elements[1], valid[lane]);
  });
}

}  // namespace softgpu::reference
