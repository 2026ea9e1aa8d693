// The function around the instructions: blocks, going from one to the next, leaving.
#include "softgpu/exec/run/block.h"
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {
namespace {

// Fields of RunContext that the code reads once.
struct Field {
  const char* name;
  const char* type;
  size_t offset;
};
constexpr Field context_fields[] = {
    {"%all_registers", "ptr", offsetof(RunContext, registers)},
    {"%register_bytes", "i64", offsetof(RunContext, register_bytes)},
    {"%warps", "ptr", offsetof(RunContext, warps)},
    {"%running", "ptr", offsetof(RunContext, running)},
    {"%calls", "ptr", offsetof(RunContext, calls)},
    {"%call", "ptr", offsetof(RunContext, call)},
    {"%masks", "ptr", offsetof(RunContext, masks)},
    {"%entries", "ptr", offsetof(RunContext, entries)},
    {"%block_x", "ptr", offsetof(RunContext, block_x)},
    {"%primary_begin", "i64", offsetof(RunContext, primary_begin)},
    {"%primary_bytes", "i64", offsetof(RunContext, primary_bytes)},
    {"%shared_base", "i64", offsetof(RunContext, shared_base)},
    {"%shared_bytes", "i64", offsetof(RunContext, shared_bytes)},
    {"%parameters", "i64", offsetof(RunContext, parameters)},
    {"%parameter_bytes", "i64", offsetof(RunContext, parameter_bytes)},
    {"%ctaid1", "i32", offsetof(RunContext, block_index) + 4},
    {"%ctaid2", "i32", offsetof(RunContext, block_index) + 8},
    {"%block_end", "i32", offsetof(RunContext, block_end)},
    {"%threads", "i32", offsetof(RunContext, threads)},
    {"%warp_count", "i32", offsetof(RunContext, warp_count)},
    {"%owned_given", "i32", offsetof(RunContext, owned)},
    {"%budget_given", "i32", offsetof(RunContext, budget)},
};
// Fields that change, as variables.
constexpr Field changing_fields[] = {
    {"%x", "i32", offsetof(RunContext, block_index)},     {"%w", "i32", offsetof(RunContext, warp_index)},
    {"%waits", "i32", offsetof(RunContext, waits)},       {"%rounds", "i32", offsetof(RunContext, rounds)},
    {"%budget", "i32", offsetof(RunContext, budget)},     {"%exited", "i32", offsetof(RunContext, exited)},
    {"%executed", "i64", offsetof(RunContext, executed)},
};

// Most registers are read soon after they are written: of this many bytes, four times what 32 registers of 64
// bytes hold, the stack sees none as a rule.
constexpr size_t most_bytes_without_stack = 8192;

// Each block has code for each place in which lanes may wait meanwhile: as many as it has branches, where
// none of them lies within another. What is made for this many takes a second or two, and LLVM much longer.
constexpr size_t most_places = 200'000;
constexpr size_t most_text = size_t{256} << 20;  // bytes, made again and again until nothing new is learned

}  // namespace

Emitter::Emitter(const FlowGraph& graph, const TierFunction& tier, const Kernel& kernel, Dim3 block)
    : graph_(graph),
      lowered_(graph.lowered),
      tier_(tier),
      kernel_(kernel),
      block_(block),
      knowledge_(lowered_.registers.size()),
      diverges_(graph.blocks.size()),
      constant_used_(lowered_.constants.size()),
      constant_of_each_warp_(lowered_.constants.size()) {}

std::optional<std::string> Emitter::run(const std::string& symbol) {
  size_t written = 0;
  do {
    learned_ = false;
    text_.clear();
    cold_.clear();
    globals_.clear();
    variables_.clear();
    exchanges_ = false;
    declarations_.clear();
    rooms_.clear();
    names_ = 0;
    constant_used_.assign(constant_used_.size(), false);
    constant_of_each_warp_.assign(constant_of_each_warp_.size(), false);
    if (written > most_text || !find_pending()) return std::nullopt;
    emit_all(symbol);
    if (!learned_) expect_any_results_of_left_out();
    written += text_.size();
  } while (learned_);
  return std::move(text_);
}

// Where lanes may wait while a block runs: targets of branches that lanes take differently, above the block.
bool Emitter::find_pending() {
  const size_t count = graph_.blocks.size();
  size_t places = 0;  // of all blocks
  pending_.assign(count, Set(count));
  std::vector<uint32_t> work{0};
  for (uint32_t b = 0; b < count; ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    if (graph_.blocks[b].left_out) continue;
    auto flow = [&](const std::vector<uint32_t>& taken) {
      Set all = pending_[b];
      uint32_t highest = 0;
      for (const uint32_t s : taken) {
        all.add(s);
        highest = std::max(highest, s);
      }
      for (const uint32_t next : all.members()) {  // in order, so that `all` keeps those above
        if (!taken.empty() && next > highest) break;
        all.remove(next);
        const size_t before = pending_[next].count();
        if (!pending_[next].add_all(all)) continue;
        places += pending_[next].count() - before;
        work.push_back(next);
      }
    };
    const std::vector<uint32_t>& successors = graph_.blocks[b].successors;
    const bool may_end = lowered_.code[graph_.blocks[b].end - 1].flow == Flow::end;
    if (diverges_[b] || successors.size() < 2) {
      flow(successors);
    } else {
      for (const uint32_t s : successors) flow({s});
    }
    if (may_end) flow({});
    if (places > most_places) return false;
  }
  return true;
}

// Of all registers that are vectors.
size_t Emitter::vector_bytes() const {
  size_t bytes = 0;
  for (uint32_t r = 0; r < lowered_.registers.size(); ++r) {
    if (lowered_.registers[r] == 'q' || type_of(r)[0] != '<') continue;
    bytes += warp_lanes * lane_bytes(lowered_.registers[r]);
  }
  return bytes;
}

Set Emitter::with_pending(Set live, uint32_t b) const {
  for (const uint32_t q : pending_[b].members()) live.add_all(graph_.blocks[q].live_in);
  return live;
}

void Emitter::emit_all(const std::string& symbol) {
  exits_.clear();
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) emit_block(b);
  emit_next_warp();
  const std::string blocks = std::move(text_) + cold_;
  text_.clear();
  emit_entries();
  const std::string entries = std::move(text_);
  text_ = variables_;
  if (exchanges_) line("%exchange = alloca <96 x i32>, align 64");
  for (uint32_t r = 0; r < lowered_.registers.size(); ++r) {
    if (lowered_.registers[r] != 'q') line(variable(r) + " = alloca " + type_of(r));
  }
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    line("%mask." + number(b) + " = alloca i32");
    line("store i32 0, ptr %mask." + number(b));
  }
  line("%stop_pc = alloca i32");
  for (const Field& field : context_fields) {
    const std::string at = set("getelementptr i8, ptr %ctx, i64 " + number(field.offset));
    line(std::string(field.name) + " = load " + field.type + ", ptr " + at);
  }
  for (const Field& field : changing_fields) {
    line(std::string(field.name) + " = alloca " + field.type);
    const std::string at = set("getelementptr i8, ptr %ctx, i64 " + number(field.offset));
    line(std::string("store ") + field.type + " " + set(std::string("load ") + field.type + ", ptr " + at) +
         ", ptr " + field.name);
  }
  emit_rooms();
  line("%fast = icmp eq i32 %entry, " + std::to_string(static_cast<int32_t>(all_warps_entry)));
  for (uint32_t c = 0; c < constant_used_.size(); ++c) {
    if (!constant_used_[c]) continue;
    const Constant& constant = tier_.function.constants[c];
    const std::string at = set("getelementptr i8, ptr %all_registers, i64 " + number(constant.offset));
    line("%k" + number(c) + " = load i" + number(8u * constant.lane_bytes) + ", ptr " + at +
         ", !invariant.load !0");
  }
  for (uint32_t r = 0; r < lowered_.registers.size(); ++r) {
    if (lowered_.registers[r] == 'q') continue;
    const std::string type = type_of(r);
    line("store " + type +
         (type[0] == '<' ? " zeroinitializer"
          : type == "i1" ? " false"
                         : " 0") +
         ", ptr " + variable(r));
  }
  emit_head();
  const std::string head = std::move(text_);
  text_ = "source_filename = \"kernel\"\n" + globals_ + "define i32 @" + symbol +
          "(ptr %ctx, i32 %entry) #0 {\nbegin:\n" + head + entries + blocks + "}\n";
  for (const std::string& declaration : declarations_) text_ += declaration + "\n";
  // Left to itself, LLVM aligns the stack to 16 bytes and every vector that it keeps there, which is a fifth
  // of the time of a matrix product. Aligning costs a register for addresses.
  const std::string alignment = vector_bytes() > most_bytes_without_stack ? "alignstack=64 " : "";
  text_ += "attributes #0 = { nounwind " + alignment +
           "\"prefer-vector-width\"=\"512\" \"min-legal-vector-width\"=\"512\" "
           "\"no-builtins\" }\n!0 = !{}\n!1 = !{!\"branch_weights\", i32 2000, i32 1}\n";
}

// In the register file of the warp. Where only rare ways need it, it is looked up there.
std::string Emitter::home_pointer(uint32_t offset) {
  std::string registers = "%registers";
  if (!registers_at_hand_) {
    const std::string at = set("getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, registers)));
    registers = set("load ptr, ptr " + at);
  }
  return set("getelementptr i8, ptr " + registers + ", i64 " + number(offset));
}
void Emitter::keep_registers_at_hand() {
  learned_ |= !registers_at_hand_;
  registers_at_hand_ = true;
}

void Emitter::emit_block(uint32_t b) {
  const CodeBlock& block = graph_.blocks[b];
  current_block_ = b;
  checked_.clear();
  label("b" + number(b));
  block_mask_ = mask_ = set("load i32, ptr %mask." + number(b));
  line("store i32 0, ptr %mask." + number(b));
  marked_mask_.clear();
  leaves_ = false;
  leaving_live_ = Set(lowered_.registers.size());
  if (block.left_out) {
    current_ = block.begin;
    line("br label %" + leaving());
  } else {
    for (uint32_t i = block.begin; i + 1 < block.end; ++i) emit_instruction(i);
    emit_terminator(b);
  }
  if (leaves_) emit_leaving(b);
}

void Emitter::emit_terminator(uint32_t b) {
  const CodeBlock& block = graph_.blocks[b];
  const uint32_t i = block.end - 1;
  const LoweredInstruction& last = lowered_.code[i];
  current_ = i;
  mask_ = block_mask_;
  const Treatment how = treatment(last);
  if (how == Treatment::barrier) return emit_barrier(b, i);
  if (how == Treatment::interpret) {
    // What the interpreter puts into a register is known to nobody here.
    const Value any{};
    for (uint32_t k = 0; k < last.defs; ++k) learn(Ref::from_bits(last.in.op[k]).index(), any);
    for (uint32_t k = 0; k < last.list_defs; ++k) learn(Ref::from_bits(last.list[k]).index(), any);
    return line("br label %" + leaving());
  }
  auto arrive = [&](uint32_t target, const std::string& lanes) {
    const std::string place = "ptr %mask." + number(target);
    line("store i32 " + set("or i32 " + set("load i32, " + place) + ", " + lanes) + ", " + place);
  };
  auto candidates = [&](std::initializer_list<uint32_t> targets) {
    Set all = pending_[b];
    for (const uint32_t target : targets) all.add(target);
    return all;
  };
  if (last.flow == Flow::next) {
    emit_instruction(i);
    arrive(b + 1, block_mask_);
    return dispatch(candidates({b + 1}), true);
  }
  if (last.flow == Flow::end) {
    emit_instruction(i);  // knows guards; adds to the lanes that have ended
    if (!last.guarded) return dispatch(candidates({}), false);
    arrive(b + 1, set("and i32 " + block_mask_ + ", " + set("xor i32 " + mask_ + ", -1")));
    return dispatch(candidates({b + 1}), false);
  }
  const uint32_t target = graph_.block_at[lowered_.label_target[static_cast<size_t>(last.in.immediate)]];
  if (last.flow == Flow::jump) {
    arrive(target, block_mask_);
    return dispatch(candidates({target}), true);
  }
  const Value condition = use(last.in.op[0]);
  const uint32_t next = b + 1;
  if (condition.scalar) {
    const std::string yes = fresh("taken."), no = fresh("passed.");
    line("br i1 " + condition.text + ", label %" + (last.in.aux ? no : yes) + ", label %" +
         (last.in.aux ? yes : no));
    label(yes);
    arrive(target, block_mask_);
    dispatch(candidates({target}), true);
    label(no);
    arrive(next, block_mask_);
    return dispatch(candidates({next}), true);
  }
  if (!diverges_[b]) {
    diverges_[b] = true;
    learned_ = true;
  }
  const std::string p = last.in.aux ? set("xor i32 " + condition.text + ", -1") : condition.text;
  const std::string taken = set("and i32 " + block_mask_ + ", " + p);
  arrive(target, taken);
  arrive(next, set("xor i32 " + block_mask_ + ", " + taken));
  dispatch(candidates({target, next}), true);
}

// To the lowest of these blocks with waiting lanes; `certain` that there is one. A backward branch costs
// budget.
void Emitter::dispatch(const Set& candidates, bool certain) {
  const std::vector<uint32_t> blocks = candidates.members();
  if (!blocks.empty() && blocks.front() <= current_block_) {
    count_executed(graph_.blocks[current_block_].end - graph_.blocks[blocks.front()].begin);
    const std::string left = set("sub i32 " + set("load i32, ptr %budget") + ", 1");
    line("store i32 " + left + ", ptr %budget");
    const std::string go = fresh("go."), stop = fresh("stop.");
    line("br i1 " + set("icmp sge i32 " + left + ", 0") + ", label %" + go + ", label %" + stop +
         ", !prof !1");
    label(stop);
    Set live(lowered_.registers.size());
    for (const uint32_t q : blocks) live.add_all(graph_.blocks[q].live_in);
    for (const uint32_t reg : live.members()) put_away(reg, false);
    line("store i32 " + number(exit_table(live)) + ", ptr " +
         set("getelementptr i8, ptr %ctx, i64 " + number(offsetof(RunContext, exit_table))));
    for (const uint32_t q : blocks) {
      const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
      line("store i32 " + set("load i32, ptr %mask." + number(q)) + ", ptr " + at);
    }
    leave(number(outcome_turn_over));
    label(go);
  }
  for (size_t k = 0; k < blocks.size(); ++k) {
    const std::string here = "label %b" + number(blocks[k]);
    if (k + 1 == blocks.size() && certain) {
      line("br " + here);
      return;
    }
    const std::string waiting = set("load i32, ptr %mask." + number(blocks[k]));
    const std::string next = k + 1 == blocks.size() ? "finish" : fresh("next.");
    line("br i1 " + set("icmp ne i32 " + waiting + ", 0") + ", " + here + ", label %" + next);
    if (next != "finish") label(next);
  }
  if (blocks.empty()) line("br label %finish");
}

// About: a warp is taken to execute the kernel once (compiled_block.cpp adds that), or what comes after its
// entry, and a loop's body again for each way back. Exact counts would cost as much as simple kernels do.
void Emitter::count_executed(uint32_t instructions) {
  const std::string count = set("load i64, ptr %executed");
  line("store i64 " + set("add i64 " + count + ", " + number(instructions)) + ", ptr %executed");
}

// Stores what the context is told and returns.
void Emitter::leave(const std::string& outcome) {
  for (const Field& field : changing_fields) {
    const std::string at = set("getelementptr i8, ptr %ctx, i64 " + number(field.offset));
    const std::string type = field.type;
    line("store " + type + " " + set("load " + type + ", ptr " + field.name) + ", ptr " + at);
  }
  line("ret i32 " + outcome);
}

// A barrier that all of the warp's lanes have reached at once needs no scheduler, as long as the warps of the
// block that have reached one wait at the same: %waits is 0 or one more than its number.
void Emitter::emit_barrier(uint32_t b, uint32_t i) {
  const Constant& id = lowered_.constants[Ref::from_bits(lowered_.code[i].in.op[0]).index()];
  if (id.kind != Constant::Kind::immediate || id.value >= block_barriers)
    return line("br label %" + leaving());
  keep_registers_at_hand();
  const std::string mark = number(id.value + 1), before = set("load i32, ptr %waits");
  const std::string same = set("or i1 " + set("icmp eq i32 " + before + ", 0") + ", " +
                               set("icmp eq i32 " + before + ", " + mark));
  const std::string left = set("load i32, ptr %exited");
  const std::string remaining =
      set("and i32 " + set("load i32, ptr %live") + ", " + set("xor i32 " + left + ", -1"));
  std::string missing = set("xor i32 " + block_mask_ + ", " + remaining);
  for (const uint32_t q : pending_[b].members()) {
    missing = set("or i32 " + missing + ", " + set("load i32, ptr %mask." + number(q)));
  }
  const std::string whole = set("icmp eq i32 " + missing + ", 0");
  require(set("and i1 %fast, " + set("and i1 " + whole + ", " + same)));
  for (const uint32_t reg : graph_.blocks[b + 1].live_in.members()) put_away(reg, true);
  line("store i32 " + number(barrier_entry(b + 1)) + ", ptr %entry_at");
  line("store i32 " + remaining + ", ptr %live_at");
  line("store i32 " + mark + ", ptr %waits");
  line("br label %next_warp");
}

}  // namespace softgpu::jit
