// The suffixes that memory instructions share.
#pragma once

#include <optional>
#include <string_view>

#include "softgpu/ptx/types.h"

namespace softgpu {

inline bool is_scope(std::string_view s) {
  return s == "cta" || s == "cluster" || s == "gpu" || s == "sys";
}
// Memory order: the interpreter's accesses are ordinary loads and stores of a processor whose order is
// strong enough for .acquire and .release; elsewhere atom and fence use sequential consistency.
inline bool is_order(std::string_view s) {
  return s == "weak" || s == "volatile" || s == "relaxed" || s == "acquire" || s == "release" ||
         s == "acq_rel" || s == "mmio";
}
// Caching has no effect on results.
inline bool is_cache_hint(std::string_view s) {
  return s == "nc" || s == "ca" || s == "cg" || s == "cs" || s == "lu" || s == "cv" || s == "wb" ||
         s == "wt" || s.starts_with("L1::") || s.starts_with("L2::") || s.starts_with("level::");
}
inline std::optional<ptx::Space> space_named(std::string_view s) {
  if (s == "global") return ptx::Space::global;
  if (s == "shared" || s == "shared::cta" || s == "shared::cluster") return ptx::Space::shared;
  if (s == "local") return ptx::Space::local;
  if (s == "const") return ptx::Space::constant;
  if (s == "param" || s == "param::entry" || s == "param::func") return ptx::Space::param;
  return std::nullopt;
}

}  // namespace softgpu
