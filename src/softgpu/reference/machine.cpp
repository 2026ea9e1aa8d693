// Threads, blocks, control.
#include "softgpu/reference/machine.h"

#include <algorithm>

namespace softgpu::reference {

using ptx::Operand;
using ptx::OperandKind;

void Machine::refuse(const Step& step, const std::string& why) {
  throw Undefined("line " + std::to_string(step.syntax->line) + ": '" + std::string(step.syntax->opcode) +
                  "': " + why);
}

void Machine::run(std::string_view entry, const Shape& shape, std::span<const std::byte> parameters,
                  uint64_t step_limit) {
  const auto found = function_by_name_.find(entry);
  if (found == function_by_name_.end()) throw Undefined("no entry '" + std::string(entry) + "'");
  shape_ = shape;
  parameters_ = parameters;
  steps_left_ = step_limit;
  for (uint32_t z = 0; z < shape.grid.z; ++z) {
    for (uint32_t y = 0; y < shape.grid.y; ++y) {
      for (uint32_t x = 0; x < shape.grid.x; ++x) run_block(functions_[found->second], Dim3{x, y, z});
    }
  }
}

void Machine::run_block(const FunctionPlan& entry, const Dim3& block) {
  block_ = block;
  shared_ = {};
  shared_.resize(static_shared_bytes_ + shape_.dynamic_shared_bytes);
  barriers_ = {};
  const Dim3 size = shape_.block;
  threads_.assign(size_t{size.x} * size.y * size.z, {});
  for (uint32_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread.index = i;
    thread.place = Dim3{i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.frames.push_back(Frame{&entry, 0, 0, std::vector<Bits>(entry.syntax->registers.size()),
                                  std::vector<bool>(entry.syntax->registers.size())});
    thread.local.resize(entry.frame_bytes);
  }
  for (;;) {
    for (Thread& thread : threads_) {
      if (thread.state == Thread::State::ready) run_thread(thread);
    }
    if (std::all_of(threads_.begin(), threads_.end(),
                    [](const Thread& thread) { return thread.state == Thread::State::ended; })) {
      return;
    }
    const bool warps = complete_warp_instructions(), barriers = open_barriers();
    if (!warps && !barriers) throw Undefined("the threads wait for each other");
  }
}

void Machine::run_thread(Thread& thread) {
  while (thread.state == Thread::State::ready) {
    Frame& frame = thread.frames.back();
    if (frame.next >= frame.plan->steps.size()) {
      do_return(thread, Step{});
      continue;
    }
    if (steps_left_-- == 0) throw Undefined("more instructions than the limit");
    const Step& step = frame.plan->steps[frame.next++];
    const ptx::Instruction& syntax = *step.syntax;
    if (syntax.guard >= 0) {
      const auto guard = static_cast<size_t>(syntax.guard);
      if (!frame.written[guard]) refuse(step, "its guard was never written");
      if ((frame.registers[guard] != 0) == syntax.guard_negated) continue;
    }
    (this->*step.execute)(thread, step);
  }
}

void Machine::do_nothing(Thread&, const Step&) {}

void Machine::do_branch(Thread& thread, const Step& step) {
  thread.frames.back().next = step.targets[0];
}

void Machine::do_indexed_branch(Thread& thread, const Step& step) {
  const Bits index = value(thread, step.syntax->operands[0], 32);
  if (index >= step.targets.size()) refuse(step, "index out of range");
  thread.frames.back().next = step.targets[static_cast<size_t>(index)];
}

void Machine::do_exit(Thread& thread, const Step&) {
  thread.state = Thread::State::ended;
}

void Machine::copy_in_frames(Thread& thread, const Frame& from, const Variable& source, const Frame& to,
                             const Variable& target) {
  for (uint64_t i = 0; i < std::min(source.bytes, target.bytes); ++i) {
    const size_t at = from.base + source.offset + i, into = to.base + target.offset + i;
    thread.local.bytes[into] = thread.local.bytes[at];
    thread.local.written[into] = thread.local.written[at];
  }
}

// call (results), function, (arguments) [, prototype]
void Machine::do_call(Thread& thread, const Step& step) {
  const std::vector<Operand>& operands = step.syntax->operands;
  size_t next = operands[0].kind == OperandKind::list ? 1 : 0;
  if (next >= operands.size()) refuse(step, "function expected");
  const Operand& target = operands[next++];
  static const std::vector<Operand> no_operands;
  const std::vector<Operand>& arguments = next < operands.size() && operands[next].kind == OperandKind::list
                                              ? operands[next].elements
                                              : no_operands;
  uint64_t number;
  if (target.kind == OperandKind::reg) {
    number = static_cast<uint64_t>(value(thread, target, 64)) - function_window;
  } else {
    const auto found = function_by_name_.find(target.text);
    number = found == function_by_name_.end() ? ~uint64_t{0} : found->second;
  }
  if (number >= functions_.size()) refuse(step, "no such function");
  const FunctionPlan& callee = functions_[number];
  if (arguments.size() != callee.parameters.size()) refuse(step, "wrong number of arguments");
  if (thread.frames.size() > 64) refuse(step, "calls are nested too deeply");
  const Frame& caller = thread.frames.back();
  Frame entered{&callee, 0, caller.base + caller.plan->frame_bytes,
                std::vector<Bits>(callee.syntax->registers.size()),
                std::vector<bool>(callee.syntax->registers.size())};
  thread.local.resize(entered.base);  // what an earlier call left there is not this one's
  thread.local.resize(entered.base + callee.frame_bytes);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Variable* const variable = find_variable(*caller.plan, arguments[i].text, arguments[i].scope);
    if (variable == nullptr) refuse(step, "arguments are .param variables here");
    copy_in_frames(thread, caller, *variable, entered, callee.parameters[i]);
  }
  thread.frames.push_back(std::move(entered));
}

void Machine::do_return(Thread& thread, const Step&) {
  if (thread.frames.size() == 1) {
    thread.state = Thread::State::ended;
    return;
  }
  const Frame done = std::move(thread.frames.back());
  thread.frames.pop_back();
  const Frame& caller = thread.frames.back();
  const Step& call = caller.plan->steps[caller.next - 1];
  const Operand& first = call.syntax->operands[0];
  if (first.kind != OperandKind::list) return;
  for (size_t i = 0; i < first.elements.size() && i < done.plan->returns.size(); ++i) {
    const Variable* const variable =
        find_variable(*caller.plan, first.elements[i].text, first.elements[i].scope);
    if (variable == nullptr) refuse(call, "results are .param variables here");
    copy_in_frames(thread, done, done.plan->returns[i], caller, *variable);
  }
}

// bar.sync a [, b]; bar.arrive a, b; bar.red.popc.u32 d, a [, b], p
void Machine::do_barrier(Thread& thread, const Step& step) {
  const std::vector<Operand>& operands = step.syntax->operands;
  const auto has = [&](std::string_view suffix) {
    return std::find(step.suffixes.begin(), step.suffixes.end(), suffix) != step.suffixes.end();
  };
  const bool reduces = has("red"), arrives = has("arrive");
  size_t next = reduces ? 1 : 0;
  const auto id = static_cast<uint64_t>(value(thread, operands[next++], 32));
  if (id >= barriers_.size()) refuse(step, "no such barrier");
  Barrier& barrier = barriers_[id];
  if (next + (reduces ? 1 : 0) < operands.size()) {
    const auto count = static_cast<uint32_t>(value(thread, operands[next++], 32));
    if (count == 0 || count % 32 != 0 || (barrier.arrived != 0 && barrier.expected != count)) {
      refuse(step, "wrong number of threads");
    }
    barrier.expected = count;
  } else if (arrives || (barrier.arrived != 0 && barrier.expected != 0)) {
    refuse(step, "number of threads expected");
  }
  ++barrier.arrived;
  if (reduces) {
    const bool p = predicate(thread, operands[next]);
    barrier.population += p ? 1 : 0;
    barrier.all = barrier.all && p;
    barrier.any = barrier.any || p;
  }
  if (arrives) return;
  thread.state = Thread::State::at_barrier;
  thread.barrier = static_cast<uint32_t>(id);
  thread.waiting = &step;
}

bool Machine::open_barriers() {
  const auto live = static_cast<uint32_t>(std::count_if(
      threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != Thread::State::ended; }));
  bool opened = false;
  for (uint32_t id = 0; id < barriers_.size(); ++id) {
    Barrier& barrier = barriers_[id];
    if (barrier.arrived == 0 || barrier.arrived < (barrier.expected != 0 ? barrier.expected : live)) continue;
    opened = true;
    for (Thread& thread : threads_) {
      if (thread.state != Thread::State::at_barrier || thread.barrier != id) continue;
      const Step& step = *thread.waiting;
      thread.state = Thread::State::ready;
      for (const std::string_view suffix : step.suffixes) {
        if (suffix == "popc") set(thread, step.syntax->operands[0], barrier.population);
        if (suffix == "and") set(thread, step.syntax->operands[0], barrier.all);
        if (suffix == "or") set(thread, step.syntax->operands[0], barrier.any);
      }
    }
    barrier = {};
  }
  return opened;
}

}  // namespace softgpu::reference
