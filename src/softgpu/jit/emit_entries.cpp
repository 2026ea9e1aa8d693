// Where compiled code is entered, and the way from warp to warp, round to round and block to block.
#include "softgpu/jit/emitter.h"

namespace softgpu::jit {
// A warp's turn begins.
void Emitter::emit_head() {
  line("br label %head");
  label("head");
  line("%warp_index = load i32, ptr %w");
  line("%ctaid0 = load i32, ptr %x");
  line("%w64 = zext i32 %warp_index to i64");
  line("%registers_at = mul i64 %w64, %register_bytes");
  line("%registers = getelementptr i8, ptr %all_registers, i64 %registers_at");
  line("%warp_at = mul i64 %w64, " + number(sizeof(Warp)));
  line("%warp = getelementptr i8, ptr %warps, i64 %warp_at");
  line("%warp_pc = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, pc)));
  line("%warp_mask = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, mask)));
  line("%live_at = getelementptr i8, ptr %warp, i64 " + number(offsetof(Warp, live)));
  line("store ptr %warp, ptr %running");
  line("%live = load i32, ptr %live_at");
  line("%entry_at = getelementptr i32, ptr %entries, i64 %w64");
  line("%next_entry = load i32, ptr %entry_at");
  line("%where = select i1 %fast, i32 %next_entry, i32 %entry");
  line("%owned = select i1 %fast, i32 %live, i32 %owned_given");
  line("%owned_lanes = bitcast i32 %owned to <32 x i1>");
  line("store i32 0, ptr %exited");
  line("%budget_now = select i1 %fast, i32 " + number(kBranchBudget) + ", i32 %budget_given");
  line("store i32 %budget_now, ptr %budget");
}

// Behind a warp's last lane, or its barrier.
void Emitter::emit_next_warp() {
  label("finish");
  const std::string alone = fresh("alone.");
  line("br i1 %fast, label %ended, label %" + alone);
  label(alone);
  leave(number(kFinished));
  label("ended");
  line("store i32 0, ptr %live_at");
  line("store i32 " + std::to_string(static_cast<int32_t>(kEnded)) + ", ptr %entry_at");
  line("br label %next_warp");
  label("next_warp");
  const std::string next = set("add i32 %warp_index, 1");
  line("store i32 " + next + ", ptr %w");
  line("br i1 " + set("icmp ult i32 " + next + ", %warp_count") + ", label %head, label %round_over");
  label("round_over");
  line("store i32 0, ptr %w");
  const std::string waited = set("load i32, ptr %waits");
  line("store i32 0, ptr %waits");
  line("br i1 " + set("icmp ne i32 " + waited + ", 0") + ", label %another_round, label %block_over");
  label("another_round");
  const std::string rounds = set("sub i32 " + set("load i32, ptr %rounds") + ", 1");
  line("store i32 " + rounds + ", ptr %rounds");
  line("br i1 " + set("icmp ne i32 " + rounds + ", 0") + ", label %head, label %rounds_over, !prof !1");
  label("rounds_over");
  leave(number(kRoundsOver));
  label("block_over");
  const std::string x = set("add i32 %ctaid0, 1");
  line("store i32 " + x + ", ptr %x");
  line("br i1 " + set("icmp ult i32 " + x + ", %block_end") + ", label %next_block, label %blocks_over");
  label("blocks_over");
  leave(number(kFinished));
  label("next_block");
  line("store i32 " + x + ", ptr %block_x");
  line("br label %reset");
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
  line("br i1 %r.more, label %reset, label %head");
}

void Emitter::emit_entries() {
  std::string table =
      "  switch i32 %where, label %next_warp [\n    i32 " + number(kStart) + ", label %start\n";
  entries_.clear();
  label("start");
  line("store i32 %live, ptr %mask.0");
  line("br label %b0");
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    const CodeBlock& block = graph_.blocks[b];
    if (!block.resumable && b != 0) continue;
    const Set live = with_pending(block.live_in, b);
    entries_.push_back(Entry{b, pending_[b].members(), saved(live), saved(block.live_in)});
    const std::string name = number(b);
    table += "    i32 " + number(general_entry(b)) + ", label %general." + name + "\n";
    label("general." + name);
    for (const uint32_t reg : live.members()) take_out(reg);
    Set places = pending_[b];
    places.add(b);
    for (const uint32_t q : places.members()) {
      const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
      line("store i32 " + set("load i32, ptr " + at) + ", ptr %mask." + number(q));
      line("store i32 0, ptr " + at);
    }
    line("br label %b" + name);
    if (b == 0 || treatment(lowered_.code[block.begin - 1]) != Treatment::barrier) continue;
    table += "    i32 " + number(barrier_entry(b)) + ", label %parked." + name + "\n";
    label("parked." + name);
    for (const uint32_t reg : block.live_in.members()) take_out(reg);
    line("store i32 %live, ptr %mask." + name);
    line("br label %b" + name);
  }
  text_ = table + "  ]\n" + text_;
}

}  // namespace softgpu::jit
