// Where compiled code is entered, and the way from warp to warp, round to round and block to block.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

// A warp's turn begins: of all warps one after the other, or of one that the interpreter has had.
void Emitter::emit_head() {
  line("%live = alloca i32");   // lanes that have not ended
  line("%owned = alloca i32");  // lanes whose registers are this run's
  line("%warp_place = alloca ptr");
  const std::string first = set("zext i32 " + set("load i32, ptr %w") + " to i64");
  const std::string place = set("mul i64 " + first + ", " + number(sizeof(Warp)));
  line("store ptr " + set("getelementptr i8, ptr %warps, i64 " + place) + ", ptr %warp_place");
  line("br label %head");
  label("head");
  line("%warp_index = load i32, ptr %w");
  line("%ctaid0 = load i32, ptr %x");
  line("%w64 = zext i32 %warp_index to i64");
  line("%warp = load ptr, ptr %warp_place");
  line("%warp_pc = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, pc)));
  line("%warp_mask = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, mask)));
  line("%live_at = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, live)));
  line("%entry_at = getelementptr i32, ptr %entries, i64 %w64");
  if (registers_at_hand_) {
    line("%registers_at = mul i64 %w64, %register_bytes");
    line("%registers = getelementptr i8, ptr %all_registers, i64 %registers_at");
  }
  line("store ptr %warp, ptr %running");
  line("store i32 0, ptr %exited");
  line(graph_.has_entries ? "br i1 %fast, label %fast_head, label %general_head" : "br label %fast_head");
}

// Lanes of the warp at the block's beginning: a constant, but for the last warp of some shapes.
std::string Emitter::lanes_at_start() {
  const uint32_t threads = block_.x * block_.y * block_.z, rest = threads % warp_lanes;
  if (rest == 0) return "-1";
  const std::string part = number((uint32_t{1} << rest) - 1);
  if (threads < warp_lanes) return part;
  return set("select i1 " + set("icmp eq i32 %warp_index, " + number(threads / warp_lanes)) + ", i32 " +
             part + ", i32 -1");
}

// Behind a warp's last lane, or its barrier.
void Emitter::emit_next_warp() {
  label("finish");
  if (graph_.has_entries) {
    line("br i1 %fast, label %ended, label %alone");
    label("alone");
    leave(number(outcome_finished));
    label("ended");
  }
  if (graph_.has_barriers) {
    line("store i32 0, ptr %live_at");
    line("store i32 " + std::to_string(static_cast<int32_t>(ended_entry)) + ", ptr %entry_at");
  }
  line("br label %next_warp");
  label("next_warp");
  const std::string next = set("add i32 %warp_index, 1");
  line("store i32 " + next + ", ptr %w");
  line("store ptr " + set("getelementptr i8, ptr %warp, i64 " + number(sizeof(Warp))) + ", ptr %warp_place");
  line("br i1 " + set("icmp ult i32 " + next + ", %warp_count") + ", label %on, label %round_over");
  label("round_over");
  line("store i32 0, ptr %w");
  line("store ptr %warps, ptr %warp_place");
  if (graph_.has_barriers) {
    const std::string waited = set("load i32, ptr %waits");
    line("store i32 0, ptr %waits");
    line("br i1 " + set("icmp ne i32 " + waited + ", 0") + ", label %another_round, label %block_over");
    label("another_round");
    const std::string rounds = set("sub i32 " + set("load i32, ptr %rounds") + ", 1");
    line("store i32 " + rounds + ", ptr %rounds");
    line("br i1 " + set("icmp ne i32 " + rounds + ", 0") + ", label %on, label %look_in, !prof !1");
  } else {
    line("br label %block_over");
  }
  label("block_over");
  const std::string x = set("add i32 %ctaid0, 1");
  line("store i32 " + x + ", ptr %x");
  line("br i1 " + set("icmp ult i32 " + x + ", %block_end") + ", label %next_block, label %blocks_over");
  label("blocks_over");
  leave(number(outcome_finished));
  label("next_block");
  line("store i32 " + x + ", ptr %block_x");
  line(graph_.has_barriers ? "br label %reset" : "br label %on");
  if (graph_.has_barriers) emit_reset();
  // Each warp's turn has an end; all of them together could hold up a cancellation for minutes.
  label("on");
  if (graph_.has_loops) {
    const std::string few =
        set("icmp ult i64 " + set("load i64, ptr %executed") + ", " + number(most_executed));
    line("br i1 " + few + ", label %head, label %look_in, !prof !1");
  } else {
    line("br label %head");
  }
  label("look_in");
  leave(number(outcome_look_in));
}

// What the warps of a block without barriers do not even look at: they run once, from the beginning.
void Emitter::emit_reset() {
  label("reset");
  line("%r.warp = phi i32 [ 0, %next_block ], [ %r.next, %reset ]");
  line("%r.next = add i32 %r.warp, 1");
  line("%r.64 = zext i32 %r.warp to i64");
  line("%r.entry = getelementptr i32, ptr %entries, i64 %r.64");
  line("store i32 0, ptr %r.entry");
  line("%r.at = mul i64 %r.64, " + number(sizeof(Warp)));
  line("%r.live_at = getelementptr i8, ptr %warps, i64 %r.at");
  line("%r.live = getelementptr i8, ptr %r.live_at, i64 " + number(offsetof(Warp, live)));
  line("%r.first = shl i32 %r.warp, 5");
  line("%r.rest = sub i32 %threads, %r.first");
  line("%r.whole = icmp uge i32 %r.rest, 32");
  line("%r.shift = and i32 %r.rest, 31");
  line("%r.one = shl i32 1, %r.shift");
  line("%r.part = sub i32 %r.one, 1");
  line("%r.mask = select i1 %r.whole, i32 -1, i32 %r.part");
  line("store i32 %r.mask, ptr %r.live");
  line("%r.more = icmp ult i32 %r.next, %warp_count");
  line("br i1 %r.more, label %reset, label %on");
}

void Emitter::emit_entries() {
  // All warps: from the beginning, or from a barrier.
  label("fast_head");
  if (graph_.has_loops) line("store i32 " + number(full_branch_budget) + ", ptr %budget");
  const std::string lanes = graph_.has_barriers ? set("load i32, ptr %live_at") : lanes_at_start();
  line("store i32 " + lanes + ", ptr %live");
  line("store i32 " + lanes + ", ptr %owned");
  if (graph_.has_barriers) {
    line("switch i32 " + set("load i32, ptr %entry_at") + ", label %next_warp [");
    line("  i32 " + number(start_entry) + ", label %start");
    for (uint32_t b = 1; b < graph_.blocks.size(); ++b) {
      if (follows_barrier(b)) line("  i32 " + number(barrier_entry(b)) + ", label %parked." + number(b));
    }
    line("]");
  } else {
    line("br label %start");
  }
  label("start");
  line("store i32 " + set("load i32, ptr %live") + ", ptr %mask.0");
  line("br label %b0");
  entries_.clear();
  if (!graph_.has_entries) return;
  // One warp: from where the interpreter has left it.
  label("general_head");
  line("store i32 %budget_given, ptr %budget");
  line("store i32 " + set("load i32, ptr %live_at") + ", ptr %live");
  line("store i32 %owned_given, ptr %owned");
  std::string table = "switch i32 %entry, label %finish [\n";
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    if (graph_.blocks[b].resumable || b == 0)
      table += "    i32 " + number(general_entry(b)) + ", label %general." + number(b) + "\n";
  }
  line(table + "  ]");
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    if (graph_.blocks[b].resumable || b == 0) emit_entry(b);
  }
}

bool Emitter::follows_barrier(uint32_t b) const {
  return b != 0 && !graph_.blocks[b].left_out &&
         treatment(lowered_.code[graph_.blocks[b].begin - 1]) == Treatment::barrier;
}

void Emitter::emit_entry(uint32_t b) {
  const CodeBlock& block = graph_.blocks[b];
  const Set live = with_pending(block.live_in, b);
  entries_.push_back(Entry{b, pending_[b].members(), saved(live), saved(block.live_in)});
  const std::string name = number(b);
  label("general." + name);
  count_executed(static_cast<uint32_t>(lowered_.code.size()) - block.begin);
  for (const uint32_t reg : live.members()) take_out(reg);
  Set places = pending_[b];
  places.add(b);
  for (const uint32_t q : places.members()) {
    const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
    line("store i32 " + set("load i32, ptr " + at) + ", ptr %mask." + number(q));
    line("store i32 0, ptr " + at);
  }
  line("br label %b" + name);
  if (!follows_barrier(b)) return;
  label("parked." + name);
  for (const uint32_t reg : block.live_in.members()) take_out(reg);
  line("store i32 " + set("load i32, ptr %live") + ", ptr %mask." + name);
  line("br label %b" + name);
}

}  // namespace softgpu::jit
