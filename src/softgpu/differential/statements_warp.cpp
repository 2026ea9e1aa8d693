// Statements in which the threads of a warp take part together.
#include "softgpu/differential/generator.h"

namespace softgpu::differential {

void Generator::write_warp_operation(const Place& place) {
  const std::string& mask = place.mask;
  if (place.whole_warp && random_.chance(30)) return write_matrix_operation(place);
  switch (random_.below(7)) {
    case 0: {
      const std::string mode = random_.one_of<std::string>({"all", "any", "uni"});
      const std::string p = (random_.chance(20) ? "!" : "") + any(1);
      return emit_fixed("vote.sync." + mode + ".pred " + any(1) + ", " + p + ", " + mask + ";");
    }
    case 1:
      return emit_fixed("vote.sync.ballot.b32 " + any(32) + ", " + any(1) + ", " + mask + ";");
    case 2: {
      const bool wide = random_.chance(40), all = random_.chance(50);
      group([&] {
        // Few different values, or none would match.
        const std::string type = wide ? ".b64 " : ".b32 ", value = wide ? "%tx0" : "%tw0";
        emit_fixed("and" + type + value + ", " + any(wide ? 64 : 32) + ", " +
                   random_.one_of<std::string>({"0", "1", "3", "0x80000000", "-1"}) + ";");
        const std::string to = any(32);
        emit_fixed(std::string("match.") + (all ? "all" : "any") + ".sync" + type + to +
                   (all && random_.chance(70) ? "|" + any(1) : "") + ", " + value + ", " + mask + ";");
      });
      return;
    }
    case 3: {
      const std::string operation = random_.one_of<std::string>(
          {"add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32",
           "min.f32", "max.NaN.f32", "min.abs.f32", "max.abs.NaN.f32"});
      return emit_fixed("redux.sync." + operation + " " + any(32) + ", " + any(32) + ", " + mask + ";");
    }
    case 4:
      return emit_fixed("bar.warp.sync " + mask + ";");
    case 5:
      return write_election(place);
    default:
      return write_shuffle(place);
  }
}

// Which lane is elected is open, and which others are active: what is certain of it is kept.
void Generator::write_election(const Place& place) {
  group([&] {
    if (random_.chance(30)) {
      emit_fixed("activemask.b32 %tw0; mov.u32 %tw1, %lanemask_eq; and.b32 " + any(32) + ", %tw0, %tw1;");
      return emit_fixed("mov.b32 %tw0, 0;");
    }
    const std::string elected = any(32), is_member = any(1);
    emit_fixed("elect.sync %tw0|%tp0, " + place.mask + "; vote.sync.ballot.b32 %tw1, %tp0, " + place.mask +
               "; shl.b32 %tw0, 1, %tw0; popc.b32 " + elected +
               ", %tw1; setp.eq.u32 %tp0, %tw0, %tw1; and.b32 %tw0, %tw0, " + place.mask +
               "; setp.ne.and.u32 " + is_member + ", %tw0, 0, %tp0; mov.b32 %tw0, 0; mov.b32 %tw1, 0;");
  });
}

void Generator::write_shuffle(const Place& place) {
  group([&] {
    std::string mode = "idx", lane = "%tw0", clamp = "0x1f";
    if (place.whole_warp) {
      mode = random_.one_of<std::string>({"up", "down", "bfly", "idx"});
      lane = random_.chance(50) ? any(32) : std::to_string(random_.below(34));
      clamp = random_.chance(60)
                  ? random_.one_of<std::string>({"0", "0x1f", "0x181f", "0x1c07", "0x1800", "0x0f0f"})
                  : any(32);
    } else if (random_.chance(50)) {
      emit_fixed("bfind.u32 %tw0, " + place.mask + ";");  // a lane that is here
    } else {
      emit_fixed("brev.b32 %tw0, " + place.mask + "; clz.b32 %tw0, %tw0;");
    }
    const std::string to = any(32);
    emit_fixed("shfl.sync." + mode + ".b32 " + to + (random_.chance(60) ? "|" + any(1) : "") + ", " +
               any(32) + ", " + lane + ", " + clamp + ", " + place.mask + ";");
  });
}

}  // namespace softgpu::differential
