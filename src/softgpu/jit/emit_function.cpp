// The function around the instructions: entries, blocks, going from one to the next, leaving.
#include "softgpu/jit/emitter.h"

namespace softgpu::jit {
namespace {

// Fields of RunContext that the code reads once.
struct Field {
  const char* name;
  const char* type;
  size_t offset;
};
constexpr Field kFields[] = {
    {"%registers", "ptr", offsetof(RunContext, registers)},
    {"%calls", "ptr", offsetof(RunContext, calls)},
    {"%call", "ptr", offsetof(RunContext, call)},
    {"%masks", "ptr", offsetof(RunContext, masks)},
    {"%warp", "ptr", offsetof(RunContext, warp)},
    {"%warp_pc", "ptr", offsetof(RunContext, warp_pc)},
    {"%warp_mask", "ptr", offsetof(RunContext, warp_mask)},
    {"%primary_begin", "i64", offsetof(RunContext, primary_begin)},
    {"%primary_bytes", "i64", offsetof(RunContext, primary_bytes)},
    {"%shared_base", "i64", offsetof(RunContext, shared_base)},
    {"%shared_bytes", "i64", offsetof(RunContext, shared_bytes)},
    {"%ctaid0", "i32", offsetof(RunContext, block_index)},
    {"%ctaid1", "i32", offsetof(RunContext, block_index) + 4},
    {"%ctaid2", "i32", offsetof(RunContext, block_index) + 8},
    {"%warp_index", "i32", offsetof(RunContext, warp_index)},
    {"%live", "i32", offsetof(RunContext, live)},
    {"%owned", "i32", offsetof(RunContext, owned)},
    {"%budget_given", "i32", offsetof(RunContext, budget)},
};

std::string number(uint64_t value) {
  return std::to_string(value);
}

}  // namespace

Emitter::Emitter(const FlowGraph& graph, const TierFunction& tier, const Kernel& kernel, Dim3 block)
    : graph_(graph),
      lowered_(graph.lowered),
      tier_(tier),
      kernel_(kernel),
      block_(block),
      knowledge_(lowered_.registers.size()),
      diverges_(graph.blocks.size()),
      constant_used_(lowered_.constants.size()) {}

std::string Emitter::run(const std::string& symbol) {
  do {
    learned_ = false;
    text_.clear();
    cold_.clear();
    globals_.clear();
    variables_.clear();
    declarations_.clear();
    names_ = 0;
    constant_used_.assign(constant_used_.size(), false);
    find_pending();
    emit_all(symbol);
  } while (learned_);
  return text_;
}

// Where lanes may wait while a block runs: targets of branches that lanes take differently, above the block.
void Emitter::find_pending() {
  const size_t count = graph_.blocks.size();
  pending_.assign(count, Set(count));
  std::vector<uint32_t> work{0};
  for (uint32_t b = 0; b < count; ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    auto flow = [&](const std::vector<uint32_t>& taken) {
      Set all = pending_[b];
      uint32_t highest = 0;
      for (const uint32_t s : taken) {
        all.add(s);
        highest = std::max(highest, s);
      }
      for (const uint32_t next : all.members()) {
        if (!taken.empty() && next > highest) break;
        Set rest(count);
        for (const uint32_t q : all.members()) {
          if (q > next) rest.add(q);
        }
        if (pending_[next].add_all(rest)) work.push_back(next);
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
  }
}

Set Emitter::with_pending(Set live, uint32_t b) const {
  for (const uint32_t q : pending_[b].members()) live.add_all(graph_.blocks[q].live_in);
  return live;
}

void Emitter::emit_all(const std::string& symbol) {
  std::string body;
  {
    for (uint32_t b = 0; b < graph_.blocks.size(); ++b) emit_block(b);
    label("finish");
    leave(number(kFinished));
    label("refuse");
    line("ret i32 " + number(kRefused));
    body = std::move(text_) + cold_;
    text_.clear();
  }
  std::string entries;
  emit_entries(entries);
  std::string head;
  for (uint32_t r = 0; r < lowered_.registers.size(); ++r) {
    if (lowered_.registers[r] == 'q') continue;
    line(variable(r) + " = alloca " + type_of(r));
  }
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    line("%mask." + number(b) + " = alloca i32");
    line("store i32 0, ptr %mask." + number(b));
  }
  for (const char* const name : {"%budget", "%exited"}) line(std::string(name) + " = alloca i32");
  line("%executed = alloca i64");
  line("store i64 0, ptr %executed");
  line("store i32 0, ptr %exited");
  for (const Field& field : kFields) {
    const std::string at = set("getelementptr i8, ptr %ctx, i64 " + number(field.offset));
    line(std::string(field.name) + " = load " + field.type + ", ptr " + at);
  }
  line("store i32 %budget_given, ptr %budget");
  line("%owned_lanes = bitcast i32 %owned to <32 x i1>");
  line("%own = call i32 " + intrinsic("i32", "cttz.i32", "i32, i1") + "(i32 %owned, i1 false)");
  line("%own64 = zext i32 %own to i64");
  line("%odd = and i32 %entry, 1");
  line("%is_odd = icmp eq i32 %odd, 1");
  line("%is_start = icmp eq i32 %entry, 0");
  line("%fast = or i1 %is_odd, %is_start");
  for (uint32_t c = 0; c < constant_used_.size(); ++c) {
    if (!constant_used_[c]) continue;
    const Constant& constant = tier_.function.constants[c];
    line("%k" + number(c) + " = load i" + number(8u * constant.lane_bytes) + ", ptr " +
         home_pointer(constant.offset) + ", !invariant.load !0");
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
  head = std::move(text_);
  text_ = "source_filename = \"kernel\"\n" + globals_;
  text_ += "define i32 @" + symbol + "(ptr %ctx, i32 %entry) #0 {\nbegin:\n" + variables_ + head + entries +
           body + "}\n";
  for (const std::string& declaration : declarations_) text_ += declaration + "\n";
  text_ +=
      "attributes #0 = { nounwind \"prefer-vector-width\"=\"512\" \"min-legal-vector-width\"=\"512\" "
      "\"no-builtins\" }\n!0 = !{}\n!1 = !{!\"branch_weights\", i32 2000, i32 1}\n";
}

std::string Emitter::home_pointer(uint32_t offset) {
  return set("getelementptr i8, ptr %registers, i64 " + number(offset));
}

void Emitter::emit_entries(std::string& result) {
  std::string table = "  switch i32 %entry, label %refuse [\n    i32 0, label %start\n";
  entries_.clear();
  label("start");
  line("store i32 %live, ptr %mask.0");
  line("br label %b0");
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    if (!graph_.blocks[b].resumable && b != 0) continue;
    entries_.push_back(Entry{b, pending_[b].members()});
    const std::string name = number(b);
    table += "    i32 " + number(2 + 2 * b) + ", label %general." + name + "\n";
    label("general." + name);
    line("store i32 0, ptr %mismatch");
    const Set live = with_pending(graph_.blocks[b].live_in, b);
    for (const uint32_t reg : live.members()) load_home(reg, "");
    const std::string bad = set("load i32, ptr %mismatch");
    const std::string hers = set("and i32 " + bad + ", %owned");
    const std::string fine = set("icmp eq i32 " + hers + ", 0");
    line("br i1 " + fine + ", label %enter." + name + ", label %refuse");
    label("enter." + name);
    Set places = pending_[b];
    places.add(b);
    for (const uint32_t q : places.members()) {
      const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
      line("store i32 " + set("load i32, ptr " + at) + ", ptr %mask." + number(q));
      line("store i32 0, ptr " + at);
    }
    line("br label %b" + name);
    if (b == 0 || treatment(lowered_.code[graph_.blocks[b].begin - 1]) != Treatment::barrier) continue;
    table += "    i32 " + number(3 + 2 * b) + ", label %parked." + name + "\n";
    label("parked." + name);
    for (const uint32_t reg : graph_.blocks[b].live_in.members()) load_parked(reg);
    line("store i32 %live, ptr %mask." + name);
    line("br label %b" + name);
    const auto unpark = static_cast<int32_t>(kUnpark | (3 + 2 * b));
    table += "    i32 " + std::to_string(unpark) + ", label %unpark." + name + "\n";
    label("unpark." + name);
    for (const uint32_t reg : graph_.blocks[b].live_in.members()) load_parked(reg);
    for (const uint32_t reg : graph_.blocks[b].live_in.members()) store_home(reg);
    line("ret i32 0");
  }
  result = "  %mismatch = alloca i32\n" + table + "  ]\n" + std::move(text_);
  text_.clear();
}

void Emitter::emit_block(uint32_t b) {
  const CodeBlock& block = graph_.blocks[b];
  current_block_ = b;
  checked_.clear();
  label("b" + number(b));
  block_mask_ = mask_ = set("load i32, ptr %mask." + number(b));
  line("store i32 0, ptr %mask." + number(b));
  const std::string count = set("load i64, ptr %executed");
  line("store i64 " + set("add i64 " + count + ", " + number(block.end - block.begin)) + ", ptr %executed");
  for (uint32_t i = block.begin; i + 1 < block.end; ++i) emit_instruction(i);
  emit_terminator(b);
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
    return exit_here(i, number(kInterpret), block_mask_, graph_.live_before(b, i));
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
    const std::string left = set("sub i32 " + set("load i32, ptr %budget") + ", 1");
    line("store i32 " + left + ", ptr %budget");
    const std::string go = fresh("go."), stop = fresh("stop.");
    line("br i1 " + set("icmp sge i32 " + left + ", 0") + ", label %" + go + ", label %" + stop +
         ", !prof !1");
    label(stop);
    Set live(lowered_.registers.size());
    for (const uint32_t q : blocks) live.add_all(graph_.blocks[q].live_in);
    for (const uint32_t reg : live.members()) store_home(reg);
    for (const uint32_t q : blocks) {
      const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
      line("store i32 " + set("load i32, ptr %mask." + number(q)) + ", ptr " + at);
    }
    leave(number(kTurnOver));
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

// Stores what the context is told and returns.
void Emitter::leave(const std::string& outcome) {
  auto tell = [&](size_t offset, const char* type, const char* variable) {
    const std::string at = set("getelementptr i8, ptr %ctx, i64 " + number(offset));
    line(std::string("store ") + type + " " + set(std::string("load ") + type + ", ptr " + variable) +
         ", ptr " + at);
  };
  tell(offsetof(RunContext, executed), "i64", "%executed");
  tell(offsetof(RunContext, budget), "i32", "%budget");
  tell(offsetof(RunContext, exited), "i32", "%exited");
  line("ret i32 " + outcome);
}

// Leaves with the lanes of `mask` at instruction i.
void Emitter::exit_here(uint32_t i, const std::string& outcome, const std::string& mask, const Set& live) {
  for (const uint32_t reg : with_pending(live, current_block_).members()) store_home(reg);
  for (const uint32_t q : pending_[current_block_].members()) {
    const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
    line("store i32 " + set("load i32, ptr %mask." + number(q)) + ", ptr " + at);
  }
  auto tell = [&](size_t offset, const std::string& value) {
    line("store i32 " + value + ", ptr " + set("getelementptr i8, ptr %ctx, i64 " + number(offset)));
  };
  tell(offsetof(RunContext, exit_pc), number(i));
  tell(offsetof(RunContext, exit_mask), mask);
  leave(outcome);
}

void Emitter::require(const std::string& holds) {
  const std::string on = fresh("on."), off = fresh("off.");
  line("br i1 " + holds + ", label %" + on + ", label %" + off + ", !prof !1");
  std::string kept = std::move(text_);
  text_.clear();
  label(off);
  exit_here(current_, number(kInterpret), block_mask_, graph_.live_before(current_block_, current_));
  cold_ += text_;
  text_ = std::move(kept);
  label(on);
}

// A barrier that all of the warp's lanes have reached at once needs no scheduler.
void Emitter::emit_barrier(uint32_t b, uint32_t i) {
  const std::string left = set("load i32, ptr %exited");
  std::string missing =
      set("xor i32 " + block_mask_ + ", " + set("and i32 %live, " + set("xor i32 " + left + ", -1")));
  for (const uint32_t q : pending_[b].members()) {
    missing = set("or i32 " + missing + ", " + set("load i32, ptr %mask." + number(q)));
  }
  const std::string all = set("icmp eq i32 " + missing + ", 0");
  const std::string park = fresh("park."), slow = fresh("slow.");
  line("br i1 " + set("and i1 %fast, " + all) + ", label %" + park + ", label %" + slow + ", !prof !1");
  label(park);
  for (const uint32_t reg : graph_.blocks[b + 1].live_in.members()) store_parked(reg);
  leave(number(kAtBarrier + b + 1));
  label(slow);
  exit_here(i, number(kInterpret), block_mask_, graph_.live_before(b, i));
}

}  // namespace softgpu::jit
