// Machine code of earlier processes, in files that are named by what it was made from.
//
// Anybody that can write there can run code as this user. So folder and files must be this user's and nobody
// else's to write, links are not followed, and a file is used only if it has the digest that it begins with:
// a damaged one is as good as none. Files appear by rename, complete or not at all; the longest unused go
// first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace softgpu::jit {

class CodeCache {
 public:
  static constexpr std::uint64_t default_most_bytes = std::uint64_t{256} << 20;

  // A cache in `folder`, which is made if it is missing; without one if that is empty or not safe, and
  // `problem` then says why.
  CodeCache(const std::string& folder, std::string& problem, std::uint64_t most_bytes = default_most_bytes);
  ~CodeCache();
  CodeCache(const CodeCache&) = delete;
  CodeCache& operator=(const CodeCache&) = delete;

  [[nodiscard]] std::optional<std::vector<std::byte>> load(const std::string& name) const;
  // Failing to store is not an error.
  void store(const std::string& name, std::span<const std::byte> code) const;

 private:
  void trim() const;

  int folder_ = -1;
  std::uint64_t most_bytes_;
};

// $XDG_CACHE_HOME/gpupool/softgpu, or the same below ~/.cache; empty if neither is known.
[[nodiscard]] std::string default_cache_folder();

}  // namespace softgpu::jit
