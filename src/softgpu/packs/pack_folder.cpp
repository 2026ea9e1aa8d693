#include "softgpu/packs/pack_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/sha256.h"
#include "image/fatbin.h"

namespace softgpu::packs {
namespace {

namespace fs = std::filesystem;
using gpupool::image::FatbinEntry;

constexpr std::string_view first_line = "gpupool-kernel-pack 1 ";

struct Known {
  std::string file;     // path of the kernel file; empty if the pack has none
  std::string source;   // to be built
  std::string library;  // in words, "libtorch_cuda.so of torch 2.6.0"
};

using Index = std::unordered_map<std::string, Known>;

void read_index(const fs::path& pack, Index& into) {
  std::ifstream file(pack / "index");
  std::string line;
  if (!std::getline(file, line) || !line.starts_with(first_line)) return;
  const std::string library = line.substr(first_line.size());
  while (std::getline(file, line)) {
    const std::size_t digest = line.find(' ');
    const std::size_t rest = digest == std::string::npos ? digest : line.find(' ', digest + 1);
    if (rest == std::string::npos) continue;
    const std::string_view state = std::string_view(line).substr(0, digest);
    std::string value = line.substr(rest + 1);
    Known known{"", "", library};
    if (state == "missing") {
      known.source = value == "-" ? "" : std::move(value);
    } else if (state == "built" && value.find('/') == std::string::npos) {
      known.file = (pack / value).string();
    } else {
      continue;
    }
    std::string key = line.substr(digest + 1, rest - digest - 1);
    // Packs of a library's former and newer versions may lie side by side: what one has built, the other need
    // not lack.
    Known& place = into[std::move(key)];
    if (!known.file.empty() || place.file.empty()) place = std::move(known);
  }
}

// All packs of a folder, read again when one of their indexes has changed: a notebook need not restart for a
// new pack.
class Packs {
 public:
  std::optional<Known> find(const std::string& folder, const std::string& digest) {
    const gpupool::MutexLock lock(mutex_);
    refresh(folder);
    const auto found = index_.find(digest);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  void refresh(const std::string& folder) REQUIRES(mutex_) {
    std::string state = folder;
    std::vector<std::pair<fs::file_time_type, fs::path>> packs;
    std::error_code error;
    for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
      const auto time = fs::last_write_time(each->path() / "index", error);
      if (error) {
        error.clear();
        continue;
      }
      packs.emplace_back(time, each->path());
      state += '\n' + each->path().string() + ' ' + std::to_string(time.time_since_epoch().count());
    }
    if (state == state_) return;
    index_.clear();
    std::sort(packs.begin(), packs.end());  // what is newest comes last, and holds
    for (const auto& [time, pack] : packs) read_index(pack, index_);
    state_ = std::move(state);
  }

  gpupool::Mutex mutex_;
  std::string state_ GUARDED_BY(mutex_);
  Index index_ GUARDED_BY(mutex_);
};

// Not destroyed: programs load images while they end.
Packs& packs() {
  static auto* const made = new Packs;
  return *made;
}

std::string missing(const Known& known) {
  const std::string file = known.source.empty() ? std::string("these kernels") : known.source;
  return "the kernel pack of " + known.library + " lacks " + file +
         (known.source.empty() ? "" : "; build it: gpupool kernel-packs build --file " + known.source);
}

}  // namespace

namespace {

// The variables' contents would lie in the caller's memory.
std::optional<gpupool::image::Cubin> machine_code_of(const FatbinEntry& entry) {
  const auto code = gpupool::image::entry_content(entry);
  auto cubin = code ? gpupool::image::read_cubin(std::as_bytes(std::span(*code))) : std::nullopt;
  if (cubin) {
    for (auto& variable : cubin->variables) variable.initial = {};
  }
  return cubin;
}

}  // namespace

PackedImage find_packed(std::span<const std::byte> fatbin, const std::string& folder) {
  PackedImage found;
  found.problem = "no kernel pack has PTX for it (gpupool kernel-packs build)";
  for (const FatbinEntry& entry : gpupool::image::fatbin_entries(fatbin)) {
    if (entry.kind != FatbinEntry::Kind::machine_code) continue;
    const auto known = packs().find(folder, gpupool::hex(gpupool::sha256(entry.payload)));
    auto cubin = machine_code_of(entry);
    if (!cubin) continue;
    if (known || cubin->architecture > found.machine_code.architecture)
      found.machine_code = std::move(*cubin);
    if (!known) continue;
    if (known->file.empty()) {
      found.problem = missing(*known);
      return found;
    }
    std::string problem;
    found.kernels = KernelFile::open(known->file, problem);
    found.problem =
        found.kernels ? "" : "the kernel pack's file " + known->file + " cannot be used: " + problem;
    return found;
  }
  return found;
}

}  // namespace softgpu::packs
