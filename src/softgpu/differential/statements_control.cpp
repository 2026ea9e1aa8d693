// Statements that decide where a thread goes. Where lanes part, a vote before tells each side who is on it,
// so that member masks are right inside.
#include "softgpu/differential/generator.h"

namespace softgpu::differential {

void Generator::write_if(const Place& place) {
  group([&] {
    const std::string number = fresh("");
    const bool uniform = place.whole_block && random_.chance(30);
    Place inside = place;
    ++inside.depth;
    Place otherwise = inside;
    const std::string p = "%lp" + number;
    const bool has_else = random_.chance(60);
    if (uniform) {
      emit_fixed("and.b32 %tw0, %u" + std::to_string(random_.below(2)) + ", " +
                 std::to_string(1 + random_.below(7)) + "; setp.ne.u32 " + p + ", %tw0, 0;");
    } else {
      emit_fixed("mov.pred " + p + ", " + any(1) + ";");
      inside.whole_warp = inside.whole_block = otherwise.whole_warp = otherwise.whole_block = false;
      if (!place.mask.empty()) {
        inside.mask = "%m" + fresh("");
        otherwise.mask = "%m" + fresh("");
        emit_fixed("vote.sync.ballot.b32 " + inside.mask + ", " + p + ", " + place.mask + "; xor.b32 " +
                   otherwise.mask + ", " + inside.mask + ", " + place.mask + ";");
      }
    }
    const std::string other = "ELSE" + number, end = "END" + number;
    const std::string kind = uniform && random_.chance(50) ? ".uni" : "";
    emit_fixed("@!" + p + " bra" + kind + " " + (has_else ? other : end) + ";");
    write_body(inside, statements(5));
    if (has_else) {
      emit_fixed("bra " + end + ";");
      emit_fixed(other + ":");
      write_body(otherwise, statements(4));
    }
    emit_fixed(end + ":");
  });
}

// Each lane its own number of times.
void Generator::write_loop(const Place& place) {
  group([&] {
    const std::string number = fresh("");
    Place inside = place;
    ++inside.depth;
    inside.whole_warp = inside.whole_block = false;
    const std::string count = "%c" + number, p = "%lp" + number, head = "LOOP" + number, end = "END" + number;
    std::string before;
    emit_fixed("and.b32 " + count + ", " + any(32) + ", 3;");
    if (!place.mask.empty()) {
      before = "%m" + fresh("");
      inside.mask = "%m" + fresh("");
      emit_fixed("mov.u32 " + before + ", " + place.mask + ";");
    }
    const bool at_the_end = random_.chance(40);  // do { } while, once more than the count
    emit_fixed(head + ":");
    if (at_the_end && !place.mask.empty()) emit_fixed("mov.u32 " + inside.mask + ", " + before + ";");
    const auto leave = [&](const std::string& to, bool negated) {
      emit_fixed("setp.ne.u32 " + p + ", " + count + ", 0;");
      if (!place.mask.empty()) {
        emit_fixed("vote.sync.ballot.b32 " + inside.mask + ", " + p + ", " + before + "; mov.u32 " + before +
                   ", " + inside.mask + ";");
      }
      emit_fixed("@" + std::string(negated ? "!" : "") + p + " bra " + to + ";");
    };
    if (!at_the_end) leave(end, true);
    write_body(inside, statements(4));
    if (at_the_end) {
      // Before the count goes down, so that the vote sees who comes again.
      leave("AGAIN" + number, false);
      emit_fixed("bra " + end + ";\nAGAIN" + number + ":");
    }
    emit_fixed("sub.u32 " + count + ", " + count + ", 1; bra " + head + ";");
    emit_fixed(end + ":");
  });
}

void Generator::write_uniform_loop(const Place& place) {
  group([&] {
    const std::string number = fresh("");
    Place inside = place;
    ++inside.depth;
    const std::string count = "%c" + number, p = "%lp" + number;
    emit_fixed("mov.u32 " + count + ", " + std::to_string(1 + random_.below(3)) + ";");
    emit_fixed("LOOP" + number + ":");
    write_body(inside, statements(3));
    emit_fixed("sub.u32 " + count + ", " + count + ", 1; setp.ne.u32 " + p + ", " + count + ", 0; @" + p +
               " bra LOOP" + number + ";");
  });
}

void Generator::write_switch(const Place& place) {
  group([&] {
    const std::string number = fresh("");
    const uint64_t cases = random_.one_of<uint64_t>({2, 4});
    Place inside = place;
    ++inside.depth;
    inside.whole_warp = inside.whole_block = false;
    const std::string index = "%c" + number;
    emit_fixed("and.b32 " + index + ", " + any(32) + ", " + std::to_string(cases - 1) + ";");
    if (!place.mask.empty()) {
      inside.mask = "%m" + fresh("");
      emit_fixed("match.any.sync.b32 " + inside.mask + ", " + index + ", " + place.mask + ";");
    }
    std::string table = "TABLE" + number + ": .branchtargets ";
    for (uint64_t i = 0; i < cases; ++i)
      table += (i == 0 ? "" : ", ") + ("CASE" + number + "_" + std::to_string(i));
    emit_fixed(table + ";\nbrx.idx " + index + ", TABLE" + number + ";");
    for (uint64_t i = 0; i < cases; ++i) {
      emit_fixed("CASE" + number + "_" + std::to_string(i) + ":");
      write_body(inside, statements(3));
      if (i + 1 < cases) emit_fixed("bra END" + number + ";");
    }
    emit_fixed("END" + number + ":");
  });
}

// Blocks that branch to each other at will, into loops too, until the fuel is gone.
void Generator::write_unstructured(const Place& place) {
  group([&] {
    const std::string number = fresh("");
    const uint64_t blocks = 3 + random_.below(4);
    Place inside = place;
    inside.depth += 2;
    inside.whole_warp = inside.whole_block = false;
    inside.mask.clear();
    const std::string fuel = "%c" + number, p = "%lp" + number, end = "END" + number;
    const auto label = [&](uint64_t block) { return "B" + number + "_" + std::to_string(block); };
    emit_fixed("mov.u32 " + fuel + ", " + std::to_string(4 + random_.below(12)) + ";");
    emit_fixed("@" + any(1) + " bra " + label(random_.below(blocks)) + ";");
    for (uint64_t b = 0; b < blocks; ++b) {
      emit_fixed(label(b) + ":");
      emit_fixed("sub.u32 " + fuel + ", " + fuel + ", 1; setp.eq.u32 " + p + ", " + fuel + ", 0; @" + p +
                 " bra " + end + ";");
      write_body(inside, static_cast<int>(random_.below(4)));
      switch (random_.below(5)) {
        case 0:
          emit_fixed("bra " + label(random_.below(blocks)) + ";");
          break;
        case 1:
          emit_fixed("@" + any(1) + " bra " + label(random_.below(blocks)) + "; bra " +
                     label(random_.below(blocks)) + ";");
          break;
        case 2: {
          const std::string table = "T" + number + "_" + std::to_string(b);
          emit_fixed("and.b32 %tw0, " + any(32) + ", 3;\n" + table + ": .branchtargets " +
                     label(random_.below(blocks)) + ", " + end + ", " + label(random_.below(blocks)) + ", " +
                     label(random_.below(blocks)) + ";\nbrx.idx %tw0, " + table + ";");
          break;
        }
        case 3:
          emit_fixed("@!" + any(1) + " bra " + end + ";");
          break;
        default:  // on into the next block
          emit_fixed("@" + any(1) + " bra " + label(random_.below(blocks)) + ";");
      }
    }
    emit_fixed(end + ":");
  });
}

void Generator::write_call(const Place& place) {
  std::vector<int> callable, without_mask;
  for (int f = 0; f < place.function; ++f) {
    const bool needs = function_needs_mask_[static_cast<size_t>(f)];
    if (!needs) without_mask.push_back(f);
    if (!needs || !place.mask.empty()) callable.push_back(f);
  }
  if (callable.empty()) return write_operation(place);
  group([&] {
    const std::string number = fresh("");
    const bool indirect = without_mask.size() == 2 && random_.chance(60);
    const std::string a = any(32), b = any(64), to32 = any(32), to64 = any(64);
    emit_fixed(
        "{\n.param .b64 cbase; .param .b32 cmask; .param .b32 ca; .param .b64 cb; .param .align 8 .b8 "
        "cr[16];");
    emit_fixed("st.param.b64 [cbase], %base; st.param.b32 [cmask], " +
               (place.mask.empty() ? "0" : place.mask) + "; st.param.b32 [ca], " + a +
               "; st.param.b64 [cb], " + b + ";");
    if (indirect) {
      emit_fixed("mov.u64 %tx0, f0; mov.u64 %tx1, f1; selp.b64 %tx0, %tx0, %tx1, " + any(1) + ";");
      emit_fixed(
          "PROTO" + number +
          ": .callprototype (.param .align 8 .b8 _[16]) _ (.param .b64 _, .param .b32 _, .param .b32 _, "
          ".param .b64 _);");
      emit_fixed("call (cr), %tx0, (cbase, cmask, ca, cb), PROTO" + number + ";");
      forget_addresses();
    } else {
      const std::string uniform = place.whole_block && random_.chance(50) ? ".uni" : "";
      emit_fixed("call" + uniform + " (cr), f" + std::to_string(random_.one_of(callable)) +
                 ", (cbase, cmask, ca, cb);");
    }
    emit_fixed("ld.param.b32 " + to32 + ", [cr]; ld.param.b64 " + to64 + ", [cr+8];\n}");
  });
}

}  // namespace softgpu::differential
