#include "softgpu/differential/generator.h"

#include "softgpu/differential/values.h"

namespace softgpu::differential {
namespace {

struct BlockShape {
  uint32_t x, y;
};

}  // namespace

std::string Generator::any(int bits) {
  switch (bits) {
    case 1:
      return name("%p", random_.below(predicates_));
    case 16:
      return name("%h", random_.below(halves_));
    case 32:
      return name("%w", random_.below(words_));
    case 64:
      return name("%x", random_.below(wides_));
    default:
      return name("%q", random_.below(quads_));
  }
}

Program Generator::make() {
  const auto [x, y] = random_.one_of<BlockShape>({{32, 1},
                                                  {32, 1},
                                                  {64, 1},
                                                  {64, 1},
                                                  {16, 2},
                                                  {8, 8},
                                                  {16, 4},
                                                  {40, 1},
                                                  {5, 1},
                                                  {1, 1},
                                                  {33, 1},
                                                  {7, 5}});
  program_.block = Dim3{x, y, 1};
  program_.grid = Dim3{random_.chance(20) ? 2u : 1u, 1, 1};
  for (uint32_t& value : program_.uniform) value = static_cast<uint32_t>(interesting_integer(random_, 32));
  threads_may_end_ = random_.chance(12);
  functions_ = small_ ? static_cast<int>(random_.chance(25)) : static_cast<int>(random_.below(3));
  emit_fixed(".version 9.0\n.target sm_120a\n.address_size 64");
  emit_fixed(".shared .align 16 .b8 own[" + std::to_string(16 * x * y) + "];");
  emit_fixed(".shared .align 16 .b8 exchanged[" + std::to_string(8 * x * y) + "];");
  for (int f = 0; f < functions_; ++f)
    function_needs_mask_.push_back(!threads_may_end_ && random_.chance(40));
  const auto function = [&](const auto& write) {
    const size_t first = program_.lines.size();
    write();
    program_.functions.emplace_back(first, program_.lines.size());
  };
  for (int f = 0; f < functions_; ++f) {
    group([&] { function([&] { write_function(f); }); });
  }
  const uint32_t threads = program_.block.x * program_.block.y;  // a lambda captures no binding in clang 14
  function([&] { write_kernel(threads); });
  declare_registers();
  if (small_) program_.drop_unused();
  return std::move(program_);
}

void Generator::write_kernel(uint32_t threads) {
  emit_fixed(".visible .entry k(.param .u64 pbase, .param .u32 pu0, .param .u32 pu1)\n{");
  write_prologue(true);
  Place place;
  place.function = functions_;
  if (!threads_may_end_) {
    place.mask = "%m0";
    place.whole_warp = threads % 32 == 0;
    place.whole_block = true;
  }
  // The lanes of this warp that there are.
  emit_setting("%m0", "mov.u32 %tw0, %warpid; shl.b32 %tw0, %tw0, 5; sub.u32 %tw0, " +
                          std::to_string(threads) +
                          ", %tw0; min.u32 %tw0, %tw0, 32; bmsk.clamp.b32 %m0, 0, %tw0;");
  write_body(place,
             small_ ? 1 + static_cast<int>(random_.below(4)) : 8 + static_cast<int>(random_.below(22)));
  write_epilogue();
  emit_fixed("ret;\n}");
}

void Generator::declare_registers() {
  const std::string count = "<" + std::to_string(next_ + 1) + ">";
  for (const size_t line : declarations_) {
    program_.lines[line].text = ".reg .pred %p<8>, %tp<8>, %lp" + count +
                                ";\n.reg .b16 %h<8>, %th<8>;\n.reg .b32 %w<8>, %tw<8>, %u<2>;\n"
                                ".reg .b64 %x<8>, %tx<8>;\n.reg .b128 %q<2>, %tq<2>;\n"
                                ".reg .b64 %tab<6>, %scratch, %approximate, %output, %base;\n"
                                ".reg .b32 %tid, %gtid, %own, %exchanged, %size, %m" +
                                count + ", %c" + count + ";\n.local .align 16 .b8 lm[64];";
  }
}

void Generator::write_prologue(bool entry) {
  using namespace layout;
  declarations_.push_back(program_.lines.size());
  emit_fixed("");
  emit_setting("%base", "ld.param.u64 %base, [pbase];");
  emit_setting("%tid",
               "mov.u32 %tw0, %tid.x; mov.u32 %tw1, %tid.y; mov.u32 %tw2, %ntid.x; mov.u32 %tw3, %ntid.y;\n"
               "mad.lo.s32 %tid, %tw1, %tw2, %tw0; mul.lo.s32 %size, %tw2, %tw3;");
  emit_setting("%gtid", "mov.u32 %tw4, %ctaid.x; mad.lo.s32 %gtid, %tw4, %size, %tid;");
  const auto pointer = [&](const std::string& to, size_t offset, size_t stride) {
    emit_setting(to, "mad.wide.u32 " + to + ", %gtid, " + std::to_string(stride) + ", %base; add.s64 " + to +
                         ", " + to + ", " + std::to_string(offset) + ";");
  };
  for (size_t t = 0; t < table_count; ++t) pointer(name("%tab", t), t * table_bytes, 8);
  pointer("%scratch", scratch_offset, scratch_bytes);
  pointer("%approximate", approximate_offset, slots_bytes);
  pointer("%output", output_offset, output_bytes);
  emit_setting("%own", "mov.u32 %own, own; mad.lo.u32 %own, %tid, 16, %own;");
  emit_setting("%exchanged", "mov.u32 %exchanged, exchanged; mad.lo.u32 %exchanged, %tid, 8, %exchanged;");
  const auto table_of = [&](int bits) {
    return bits == 16   ? random_.one_of({0, 1, 4, 5})
           : bits == 32 ? random_.one_of({2, 2, 4, 4, 5})
                        : random_.one_of({3, 3, 4, 4, 5});
  };
  const auto load = [&](const char* prefix, uint64_t count, int bits) {
    for (uint64_t i = 0; i < count; ++i) {
      const std::string to = name(prefix, i);
      emit_setting(to,
                   "ld.global.b" + std::to_string(bits) + " " + to + ", " + in_table(table_of(bits)) + ";");
    }
  };
  load("%h", halves_, 16);
  load("%w", words_, 32);
  load("%x", wides_, 64);
  for (uint64_t i = 0; i < predicates_; ++i) {
    const std::string to = name("%p", i);
    emit_setting(to, "setp." + std::string(random_.one_of({"lt.s32 ", "gt.u32 ", "ne.b32 "})) + to + ", " +
                         any(32) + ", " + any(32) + ";");
  }
  for (uint64_t i = 0; i < quads_; ++i) {
    const std::string to = name("%q", i);
    emit_setting(to, "mov.b128 " + to + ", {" + any(64) + ", " + any(64) + "};");
  }
  for (int i = 0; i < 64; i += 8) {
    emit_setting("lm", "st.local.b64 [lm+" + std::to_string(i) + "], " + any(64) + ";");
  }
  if (entry) {
    emit_setting("%u0", "ld.param.u32 %u0, [pu0];");
    emit_setting("%u1", "ld.param.u32 %u1, [pu1];");
    emit_setting("%own", "st.shared.v2.b64 [%own], {" + any(64) + ", " + any(64) + "};");
  }
}

// Everything that the thread holds goes to its place in the output.
void Generator::write_epilogue() {
  size_t at = 0;
  const auto store = [&](const std::string& shown, const std::string& what, size_t bytes) {
    at = (at + bytes - 1) / bytes * bytes;
    emit_showing(shown, "st.global.b" + std::to_string(8 * bytes) + " [%output+" + std::to_string(at) +
                            "], " + what + ";");
    at += bytes;
  };
  const auto store_all = [&](const char* prefix, uint64_t count, size_t bytes) {
    for (uint64_t i = 0; i < count; ++i) store(name(prefix, i), name(prefix, i), bytes);
  };
  store_all("%q", quads_, 16);
  store_all("%x", wides_, 8);
  store_all("%w", words_, 4);
  store_all("%h", halves_, 2);
  for (uint64_t i = 0; i < predicates_; ++i) {
    const std::string p = name("%p", i);
    emit_showing(p, "selp.b32 %tw0, 1, 0, " + p + ";");
    store(p, "%tw0", 4);
  }
  for (int i = 0; i < 64; i += 8) {
    emit_showing("lm", "ld.local.b64 %tx0, [lm+" + std::to_string(i) + "];");
    store("lm", "%tx0", 8);
  }
  emit_showing("%own", "ld.shared.v2.b64 {%tx0, %tx1}, [%own];");
  store("%own", "%tx0", 8);
  store("%own", "%tx1", 8);
}

void Generator::write_function(int number) {
  emit_fixed(".func (.param .align 8 .b8 result[16]) f" + std::to_string(number) +
             "(.param .b64 pbase, .param .b32 pmask, .param .b32 pa, .param .b64 pb)\n{");
  write_prologue(false);
  emit_fixed("ld.param.b32 %m0, [pmask]; ld.param.b32 %w0, [pa]; ld.param.b64 %x0, [pb];");
  Place place;
  place.function = number;
  place.depth = 1;
  if (function_needs_mask_[static_cast<size_t>(number)]) place.mask = "%m0";
  write_body(place, small_ ? 1 + static_cast<int>(random_.below(3)) : 3 + static_cast<int>(random_.below(8)));
  emit_fixed("st.param.b32 [result], " + any(32) + "; st.param.b64 [result+8], " + any(64) + ";");
  emit_fixed("ret;\n}");
}

void Generator::write_body(const Place& place, int statements) {
  for (int i = 0; i < statements; ++i) write_statement(place);
}

void Generator::write_statement(const Place& place) {
  const auto choice = random_.below(100);
  const bool deep = place.depth >= (small_ ? 2 : 3);
  if (choice < 46) return write_operation(place);
  if (choice < 50) return write_approximation();
  if (choice < 53) return write_carries();
  if (choice < 58) return write_move();
  if (choice < 63) return write_private_access();
  if (choice < 66) return write_local_access();
  if (choice < 68) return write_atomic();
  if (choice < 70) return write_counter();
  if (choice < 71) return write_copy_async();
  if (choice < 72) return write_address_conversion();
  if (choice < 82) {
    if (place.whole_block && random_.chance(30)) {
      return random_.chance(60) ? write_exchange() : write_barrier_reduction();
    }
    return place.mask.empty() ? write_operation(place) : write_warp_operation(place);
  }
  if (threads_may_end_ && place.function == functions_ && choice == 82) {
    return emit("@" + std::string(random_.chance(50) ? "!" : "") + any(1) + " exit;");
  }
  if (deep) return write_operation(place);
  if (choice < 88) return write_if(place);
  if (choice < 92)
    return place.whole_block && random_.chance(50) ? write_uniform_loop(place) : write_loop(place);
  if (choice < 94) return write_switch(place);
  if (choice < 96) return write_unstructured(place);
  return write_call(place);
}

}  // namespace softgpu::differential
