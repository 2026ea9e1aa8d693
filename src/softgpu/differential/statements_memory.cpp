// Statements that touch memory: each thread its own, or in a way whose order does not show.
#include "softgpu/differential/generator.h"

namespace softgpu::differential {
namespace {

std::string plus(const std::string& base, uint64_t offset) {
  return "[" + base + "+" + std::to_string(offset) + "]";
}

}  // namespace

// In this thread's 64 bytes of global or 16 bytes of shared memory.
void Generator::write_private_access() {
  const bool shared = random_.chance(35);
  const uint64_t room = shared ? 16 : layout::scratch_bytes;
  const std::string space = shared
                                ? random_.one_of({".shared", ".shared::cta"})
                                : random_.one_of({".global", "", ".relaxed.gpu.global", ".volatile.global"});
  const std::string base = shared ? "%own" : "%scratch";
  const bool stores = random_.chance(45);
  const bool plain = space == ".global" || space.empty();
  const std::string hint = stores || !plain ? "" : random_.one_of({"", "", ".ca", ".cg"});
  const auto opcode = [&](const std::string& rest) {
    return (stores ? "st" : "ld") + space + hint + rest + " ";
  };
  switch (random_.below(4)) {
    case 0: {  // narrower than the register
      const int bits = random_.one_of({16, 32, 64});
      const int narrow = random_.one_of({8, 16, 32});
      if (narrow >= bits && narrow != 8) break;
      const std::string type = std::string(random_.one_of({".u", ".s", ".b"})) + std::to_string(narrow);
      const auto bytes = static_cast<uint64_t>(narrow) / 8;
      const std::string at = plus(base, bytes * random_.below(room / bytes));
      const std::string what = any(bits);
      return emit(guard() + opcode(type) + (stores ? at + ", " + what : what + ", " + at) + ";");
    }
    case 1: {  // vectors
      const auto count = small_ ? uint64_t{2} : random_.one_of<uint64_t>({2, 4});
      const auto bits = random_.one_of<uint64_t>({16, 32, 64});
      const uint64_t bytes = count * bits / 8;
      if (bytes > 16 || bytes > room) break;
      std::string elements;
      uint64_t from = 0;
      for (uint64_t i = 0; i < count; ++i) {
        // Destinations differ from each other.
        const char* const prefix = bits == 16 ? "%h" : bits == 32 ? "%w" : "%x";
        from = i == 0 ? random_.below(small_ ? 1 : 2) : from + 1;
        elements += (i == 0 ? "{" : ", ") + name(prefix, from);
      }
      elements += "}";
      const std::string at = plus(base, bytes * random_.below(room / bytes));
      return emit(guard() + opcode(".v" + std::to_string(count) + ".b" + std::to_string(bits)) +
                  (stores ? at + ", " + elements : elements + ", " + at) + ";");
    }
    case 2: {  // at an address that is computed
      group([&] {
        emit_fixed("and.b32 %tw0, " + any(32) + ", " + std::to_string(room - 8) + ";");
        const std::string what = any(64);
        if (shared) {
          emit_fixed("add.u32 %tw0, %tw0, %own;");
        } else {
          emit_fixed("cvt.u64.u32 %tx0, %tw0; add.u64 %tx0, %tx0, %scratch;");
        }
        const std::string at = shared ? "[%tw0]" : "[%tx0]";
        emit(guard() + opcode(".b64") + (stores ? at + ", " + what : what + ", " + at) + ";");
        forget_addresses();
      });
      return;
    }
    default:
      break;
  }
  const int bits = random_.one_of({16, 32, 64, 128});
  const auto bytes = static_cast<uint64_t>(bits) / 8;
  const std::string at = plus(base, bytes * random_.below(room / bytes));
  const std::string what = any(bits);
  emit(guard() + opcode(".b" + std::to_string(bits)) + (stores ? at + ", " + what : what + ", " + at) + ";");
}

void Generator::write_local_access() {
  const bool stores = random_.chance(50);
  const std::string what = any(32);
  if (random_.chance(50)) {
    const std::string at = plus("lm", 4 * random_.below(16));
    return emit(guard() + (stores ? "st.local.b32 " + at + ", " + what : "ld.local.b32 " + what + ", " + at) +
                ";");
  }
  group([&] {
    const bool generic = random_.chance(50);
    emit_fixed("and.b32 %tw0, " + any(32) +
               ", 60; cvt.u64.u32 %tx0, %tw0; mov.u64 %tx1, lm; add.u64 %tx0, %tx0, %tx1;");
    if (generic) emit_fixed("cvta.local.u64 %tx0, %tx0;");
    const std::string space = generic ? "" : ".local";
    emit(guard() +
         (stores ? "st" + space + ".b32 [%tx0], " + what : "ld" + space + ".b32 " + what + ", [%tx0]") + ";");
    forget_addresses();
  });
}

// On the thread's own memory, so that its result is defined.
void Generator::write_atomic() {
  const std::string operation = random_.one_of(catalogue_.atomics());
  const std::string type = operation.substr(operation.rfind('.') + 1);
  const auto known = reference::number_type(type);
  if (!known || operation.find(".v") != std::string::npos) return;
  const bool sums = known->is_float() && operation.starts_with("add");
  if (known->is_float() && !sums && !operation.starts_with("exch")) return;
  const int bits = known->register_bits();
  const auto bytes = static_cast<uint64_t>(bits) / 8;
  const bool shared = random_.chance(40), returns = random_.chance(70) || bits == 128 ||
                                                    operation.starts_with("exch") ||
                                                    operation.starts_with("cas");
  if (bits == 16 && shared) return;
  const std::string order =
      random_.one_of({"", ".relaxed.gpu", ".acq_rel.sys", ".acquire.cta", ".release.gpu"});
  const std::string opcode = std::string(returns ? "atom" : "red") +
                             (returns || order.empty() ? order : ".relaxed.gpu") +
                             (shared ? ".shared" : random_.one_of({".global", ""})) + "." + operation + " ";
  const uint64_t room = shared ? 16 : layout::scratch_bytes;
  const std::string at = plus(shared ? "%own" : "%scratch", bytes * random_.below(room / bytes));
  group([&] {
    std::string operands = ", " + (bits == 128 ? any(128) : source(bits, known->format));
    if (operation.starts_with("cas")) {
      // The comparison holds now and then.
      if (random_.chance(60)) {
        const std::string held = bits == 16 ? "%th0" : bits == 32 ? "%tw0" : bits == 64 ? "%tx0" : "%tq0";
        emit_fixed(std::string("ld") + (shared ? ".shared" : ".global") + ".b" + std::to_string(bits) + " " +
                   held + ", " + at + ";");
        operands = ", " + held;
      }
      operands += ", " + any(bits);
    }
    emit(guard() + opcode + (returns ? any(bits) + ", " : "") + at + operands + ";");
    if (!sums) return;
    const std::string sum = bits == 16 ? "%th6" : bits == 32 ? "%tw7" : "%tx7";
    const std::string space = (shared ? ".shared.b" : ".global.b") + std::to_string(bits) + " ";
    emit_fixed("ld" + space + sum + ", " + at + ";");
    write_canonical_nan(*reference::find_operation("add." + type), sum);
    emit_fixed("st" + space + at + ", " + sum + ";");
  });
}

// Many threads on one address: operations that may come in any order, one kind for each address.
void Generator::write_counter() {
  static const std::vector<std::pair<std::string, int>> counter_operations{
      {"add.u32", 32}, {"add.u64", 64}, {"min.s32", 32}, {"max.u32", 32}, {"and.b32", 32}, {"or.b32", 32},
      {"xor.b32", 32}, {"max.s64", 64}, {"min.u64", 64}, {"xor.b64", 64}, {"or.b64", 64},  {"add.s32", 32}};
  const size_t which = random_.below(counter_operations.size());
  const auto& [operation, bits] = counter_operations[which];
  const std::string at = plus("%base", layout::counters_offset + 8 * which);
  emit(guard() + "red.global." + operation + " " + at + ", " + any(bits) + ";");
}

void Generator::write_copy_async() {
  group([&] {
    const auto bytes = random_.one_of<uint64_t>({4, 8, 16});
    std::string text = std::string("cp.async.") + (bytes == 16 && random_.chance(50) ? "cg" : "ca") +
                       ".shared.global " + plus("%own", bytes * random_.below(16 / bytes)) + ", " +
                       plus("%scratch", bytes * random_.below(layout::scratch_bytes / bytes)) + ", " +
                       std::to_string(bytes);
    if (random_.chance(30)) {
      emit_fixed("and.b32 %tw0, " + any(32) + ", " + std::to_string(bytes - 1) + ";");
      text += ", %tw0";
    }
    emit_fixed(text + ";");
    if (random_.chance(50)) emit_fixed("cp.async.commit_group;");
    emit_fixed(random_.chance(50) ? "cp.async.wait_all;" : "cp.async.commit_group; cp.async.wait_group 0;");
  });
}

void Generator::write_address_conversion() {
  group([&] {
    if (random_.chance(50)) {  // shared memory through a generic address
      emit_fixed("cvt.u64.u32 %tx0, %own; cvta.shared.u64 %tx0, %tx0;");
      const std::string what = any(64);
      emit(random_.chance(50) ? "st.b64 [%tx0], " + what + ";" : "ld.b64 " + what + ", [%tx0+8];");
    } else {
      emit_fixed("cvta.to.global.u64 %tx0, %scratch;");
      emit_fixed("ld.global.b32 " + any(32) + ", [%tx0+4];");
    }
    emit("isspacep." + std::string(random_.one_of({"shared", "global", "local"})) + " " + any(1) + ", %tx0;");
    forget_addresses();
  });
}

// Through shared memory, between barriers that all threads of the block reach.
void Generator::write_exchange() {
  const std::string barrier = random_.one_of<std::string>(
      {"bar.sync 0;", "barrier.sync 1;", "barrier.cta.sync.aligned 3;", "@%tp7 bar.sync 4;"});
  const bool counted = program_.block.x * program_.block.y % 32 == 0 && random_.chance(30);
  group([&] {
    emit_fixed("setp.eq.u32 %tp7, %tid, %tid;");
    const std::string used = counted ? "bar.sync 5, %size;" : barrier;
    emit_fixed("st.shared.b64 [%exchanged], " + any(64) + ";");
    emit_fixed(used);
    emit_fixed("add.u32 %tw0, %tid, " + std::to_string(random_.below(70)) +
               "; rem.u32 %tw0, %tw0, %size; mov.u32 %tw1, exchanged; mad.lo.u32 %tw0, %tw0, 8, %tw1;");
    emit_fixed("ld.shared.b64 " + any(64) + ", [%tw0];");
    forget_addresses();
    emit_fixed(used);
  });
}

void Generator::write_barrier_reduction() {
  const std::string base = random_.one_of<std::string>({"bar.red", "barrier.red", "barrier.cta.red"});
  const std::string id = std::to_string(random_.below(16));
  const std::string p = (random_.chance(30) ? "!" : "") + any(1);
  if (random_.chance(40)) {
    emit_fixed(base + ".popc.u32 " + any(32) + ", " + id + ", " + p + ";");
  } else {
    emit_fixed(base + (random_.chance(50) ? ".and" : ".or") + ".pred " + any(1) + ", " + id + ", " + p + ";");
  }
}

}  // namespace softgpu::differential
