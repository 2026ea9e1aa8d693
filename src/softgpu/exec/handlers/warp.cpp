// What lanes of a warp do together: shfl vote match activemask elect redux bar.warp.sync.
// The .sync forms first wait until all lanes of their member mask are here.
#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

constexpr uint32_t not_sync_flag = 0x80;  // in aux: the old forms without a member mask

enum ShuffleMode : uint32_t { shuffle_up, shuffle_down, shuffle_butterfly, shuffle_index };

// d|p = shfl a, b, c [, mask]
template <ShuffleMode shuffle_mode, bool is_sync>
void shuffle(Warp& warp, const Instruction& in) {
  const uint32_t* const b = reg<uint32_t>(warp, in.op[3]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[4]);
  alignas(64) uint32_t a[warp_lanes], from[warp_lanes], result[warp_lanes];
  std::memcpy(a, reg<uint32_t>(warp, in.op[2]), sizeof(a));
  uint32_t valid = 0;
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t value = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    const uint32_t first = lane & segment, last = first | (clamp & ~segment);
    const uint32_t wanted = shuffle_mode == shuffle_up          ? lane - value
                            : shuffle_mode == shuffle_down      ? lane + value
                            : shuffle_mode == shuffle_butterfly ? lane ^ value
                                                                : first | (value & ~segment);
    const bool in_range = shuffle_mode == shuffle_up
                              ? static_cast<int32_t>(wanted) >= static_cast<int32_t>(last)
                              : wanted <= last;
    from[lane] = (in_range ? wanted : lane) & 31;
    valid |= in_range ? uint32_t{1} << lane : 0;
  }
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) result[lane] = a[from[lane]];
  const auto give = [&](uint32_t, uint32_t) {
    write<uint32_t>(warp, in.op[0], [&](uint32_t i) { return result[i]; });
    write_predicate(warp, in.op[1], valid);
  };
  if constexpr (is_sync) {
    together(warp, in, in.op[5], give);
  } else {
    give(full_mask, warp.mask);
  }
}

template <ShuffleMode shuffle_mode>
void register_shuffle(OpcodeTable& table, const std::string& mode) {
  table.add("shfl.sync." + mode + ".b32", "w:p=wwww", shuffle<shuffle_mode, true>);
  table.add("shfl." + mode + ".b32", "w:p=www", shuffle<shuffle_mode, false>);
}

enum VoteMode : uint32_t { vote_all, vote_any, vote_uni, vote_ballot };

// d = vote a [, mask]
void vote(Warp& warp, const Instruction& in) {
  const uint32_t truths = predicate(warp, in.op[1]);
  const auto give = [&](uint32_t, uint32_t lanes) {
    const uint32_t a = truths & lanes;
    switch (in.aux & 3) {
      case vote_all:
        return write_predicate(warp, in.op[0], a == lanes ? ~0u : 0u);
      case vote_any:
        return write_predicate(warp, in.op[0], a != 0 ? ~0u : 0u);
      case vote_uni:
        return write_predicate(warp, in.op[0], a == lanes || a == 0 ? ~0u : 0u);
      default:
        write<uint32_t>(warp, in.op[0], [=](uint32_t) { return a; });
    }
  };
  if (in.aux & not_sync_flag) return give(full_mask, warp.mask);
  together(warp, in, in.op[2], give);
}

template <class T>
void match_any(Warp& warp, const Instruction& in) {
  T a[warp_lanes];
  std::memcpy(a, reg<T>(warp, in.op[1]), sizeof(a));
  uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
  together(warp, in, in.op[2], [&](uint32_t, uint32_t lanes) {
    each_active(warp, [&](uint32_t i) { d[i] = collect([&](uint32_t k) { return a[k] == a[i]; }) & lanes; });
  });
}
template <class T>
void match_all(Warp& warp, const Instruction& in) {
  T a[warp_lanes];
  std::memcpy(a, reg<T>(warp, in.op[2]), sizeof(a));
  together(warp, in, in.op[3], [&](uint32_t, uint32_t lanes) {
    const T first = a[std::countr_zero(lanes != 0 ? lanes : warp.mask)];
    const bool same = (collect([&](uint32_t k) { return a[k] == first; }) & lanes) == lanes;
    write<uint32_t>(warp, in.op[0], [=](uint32_t) { return same ? lanes : 0u; });
    write_predicate(warp, in.op[1], same ? ~0u : 0u);
  });
}

void active_mask(Warp& warp, const Instruction& in) {
  const uint32_t mask = warp.mask;
  write<uint32_t>(warp, in.op[0], [=](uint32_t) { return mask; });
}

// d|p = elect mask
void elect(Warp& warp, const Instruction& in) {
  together(warp, in, in.op[2], [&](uint32_t, uint32_t lanes) {
    const auto leader = static_cast<uint32_t>(std::countr_zero(lanes != 0 ? lanes : warp.mask));
    write<uint32_t>(warp, in.op[0], [=](uint32_t) { return leader; });
    write_predicate(warp, in.op[1], uint32_t{1} << leader);
  });
}

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(uint32_t(a) + uint32_t(b));
  }
};
struct Least {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Greatest {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return a ^ b;
  }
};

template <class Op, class T>
void reduce(Warp& warp, const Instruction& in) {
  T a[warp_lanes];
  std::memcpy(a, reg<T>(warp, in.op[1]), sizeof(a));
  together(warp, in, in.op[2], [&](uint32_t, uint32_t lanes) {
    T result{};
    bool first = true;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const T value = a[std::countr_zero(rest)];
      result = first ? value : Op::apply(result, value);
      first = false;
    }
    write<T>(warp, in.op[0], [=](uint32_t) { return result; });
  });
}

void warp_barrier(Warp& warp, const Instruction& in) {
  together(warp, in, in.op[0], [](uint32_t, uint32_t) {}, /*exchanges=*/false);
}

}  // namespace

void register_warp(OpcodeTable& table) {
  register_shuffle<shuffle_up>(table, "up");
  register_shuffle<shuffle_down>(table, "down");
  register_shuffle<shuffle_butterfly>(table, "bfly");
  register_shuffle<shuffle_index>(table, "idx");
  static constexpr const char* vote_names[] = {"all.pred", "any.pred", "uni.pred", "ballot.b32"};
  for (uint32_t mode = 0; mode < 4; ++mode) {
    table.add(std::string("vote.sync.") + vote_names[mode], mode == vote_ballot ? "w=pw" : "p=pw", vote,
              mode);
    // The assembler also takes the words the other way round, and inline assembly uses it.
    const std::string name = vote_names[mode];
    const size_t dot = name.find('.');
    table.add("vote." + name.substr(0, dot) + ".sync" + name.substr(dot),
              mode == vote_ballot ? "w=pw" : "p=pw", vote, mode);
    table.add(std::string("vote.") + vote_names[mode], mode == vote_ballot ? "w=p" : "p=p", vote,
              mode | not_sync_flag);
  }
  table.add("match.any.sync.b32", "w=ww", match_any<uint32_t>);
  table.add("match.any.sync.b64", "w=xw", match_any<uint64_t>);
  table.add("match.all.sync.b32", "w:p=ww", match_all<uint32_t>);
  table.add("match.all.sync.b64", "w:p=xw", match_all<uint64_t>);
  table.add("activemask.b32", "w=", active_mask);
  table.add("elect.sync", "w:p=w", elect);
  table.add("redux.sync.add.u32", "w=ww", reduce<Sum, uint32_t>);
  table.add("redux.sync.add.s32", "w=ww", reduce<Sum, int32_t>);
  table.add("redux.sync.min.u32", "w=ww", reduce<Least, uint32_t>);
  table.add("redux.sync.min.s32", "w=ww", reduce<Least, int32_t>);
  table.add("redux.sync.max.u32", "w=ww", reduce<Greatest, uint32_t>);
  table.add("redux.sync.max.s32", "w=ww", reduce<Greatest, int32_t>);
  table.add("redux.sync.and.b32", "w=ww", reduce<And, uint32_t>);
  table.add("redux.sync.or.b32", "w=ww", reduce<Or, uint32_t>);
  table.add("redux.sync.xor.b32", "w=ww", reduce<Xor, uint32_t>);
  table.add("bar.warp.sync", "=w", warp_barrier);
}

}  // namespace softgpu::SOFTGPU_ISA
