#include "softgpu/jit/code_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/sha256.h"

namespace softgpu::jit {
namespace {

constexpr std::uint64_t most_code_bytes = std::uint64_t{64} << 20;

// Closed at the end of the scope.
struct Descriptor {
  explicit Descriptor(int given) : number(given) {}
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

bool is_ours_alone(const struct stat& state) {
  return state.st_uid == geteuid() && (state.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool make_folder(const std::string& folder) {
  for (size_t slash = 1; slash != std::string::npos;) {
    slash = folder.find('/', slash + 1);
    if (mkdir(folder.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return false;
  }
  return true;
}

// The digest names the content and the name: a file of other code under this name is none.
gpupool::Digest digest_of(const std::string& name, std::span<const std::byte> code) {
  gpupool::Sha256 sum;
  sum.update(std::as_bytes(std::span(name)));
  sum.update(code);
  return sum.finish();
}

bool read_all(int file, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::read(file, into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool write_all(int file, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = ::write(file, from.data(), from.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from = from.subspan(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace

std::string default_cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/gpupool/softgpu";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/gpupool/softgpu" : std::string();
}

CodeCache::CodeCache(const std::string& folder, std::string& problem, std::uint64_t most_bytes)
    : most_bytes_(most_bytes) {
  if (folder.empty()) return;
  if (!make_folder(folder)) {
    problem = "folder " + folder + " cannot be made: " + std::strerror(errno);
    return;
  }
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat state{};
  if (opened < 0 || fstat(opened, &state) != 0) {
    problem = "folder " + folder + " cannot be opened: " + std::strerror(errno);
    if (opened >= 0) close(opened);
    return;
  }
  if (state.st_uid != geteuid() || (state.st_mode & 077) != 0) {
    problem = "folder " + folder + " must belong to this user and have mode 0700";
    close(opened);
    return;
  }
  folder_ = opened;
}

CodeCache::~CodeCache() {
  if (folder_ >= 0) close(folder_);
}

std::optional<std::vector<std::byte>> CodeCache::load(const std::string& name) const {
  if (folder_ < 0) return std::nullopt;
  const Descriptor file(openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat state{};
  gpupool::Digest digest{};
  if (file.number < 0 || fstat(file.number, &state) != 0 || !S_ISREG(state.st_mode) || !is_ours_alone(state))
    return std::nullopt;
  const auto size = static_cast<std::uint64_t>(state.st_size);
  if (size <= digest.size() || size > most_code_bytes) return std::nullopt;
  std::vector<std::byte> code(size - digest.size());
  if (!read_all(file.number, digest) || !read_all(file.number, code) || digest_of(name, code) != digest)
    return std::nullopt;
  futimens(file.number, nullptr);  // used now
  return code;
}

void CodeCache::store(const std::string& name, std::span<const std::byte> code) const {
  if (folder_ < 0 || code.size() > most_code_bytes) return;
  const std::string unfinished = name + "." + std::to_string(getpid()) + ".new";
  {
    const Descriptor file(
        openat(folder_, unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.number < 0) return;
    if (!write_all(file.number, digest_of(name, code)) || !write_all(file.number, code)) {
      unlinkat(folder_, unfinished.c_str(), 0);
      return;
    }
  }
  if (renameat(folder_, unfinished.c_str(), folder_, name.c_str()) != 0)
    unlinkat(folder_, unfinished.c_str(), 0);
  trim();
}

// Down to three quarters when there is too much.
void CodeCache::trim() const {
  struct Stored {
    time_t used;
    std::uint64_t bytes;
    std::string name;
  };
  const int again = openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = again < 0 ? nullptr : fdopendir(again);
  if (listing == nullptr) {
    if (again >= 0) close(again);
    return;
  }
  std::vector<Stored> files;
  std::uint64_t total = 0;
  while (const dirent* const entry = readdir(listing)) {
    struct stat state{};
    if (fstatat(folder_, entry->d_name, &state, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(state.st_mode))
      continue;
    total += static_cast<std::uint64_t>(state.st_size);
    files.push_back({state.st_mtime, static_cast<std::uint64_t>(state.st_size), entry->d_name});
  }
  closedir(listing);
  if (total <= most_bytes_) return;
  std::sort(files.begin(), files.end(), [](const Stored& a, const Stored& b) { return a.used < b.used; });
  for (const Stored& file : files) {
    if (total <= most_bytes_ / 4 * 3) break;
    if (unlinkat(folder_, file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

}  // namespace softgpu::jit
