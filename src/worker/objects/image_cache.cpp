#include "worker/objects/image_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

#include "wire/transport/socket.h"

namespace gpupool::worker {
namespace {

constexpr std::string_view unfinished = "new-";
constexpr time_t unfinished_seconds = 600;  // older ones were left by a worker that died while writing
constexpr const char* lock_name = "lock";

bool is_digest_name(std::string_view name) {
  return name.size() == 2 * sizeof(Digest) && name.find_first_not_of("0123456789abcdef") == name.npos;
}

bool read_all(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::read(fd, out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

struct Kept {
  timespec used;
  std::uint64_t size;
  std::string name;
};

/// The finished files of a folder; unfinished ones that nobody writes any more are removed.
std::vector<Kept> list(int folder) {
  std::vector<Kept> found;
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return found;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(again), &::closedir);
  if (!entries) {
    ::close(again);
    return found;
  }
  const time_t now = ::time(nullptr);
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    struct stat status{};
    const bool finished = is_digest_name(name);
    if ((!finished && !name.starts_with(unfinished)) ||
        ::fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (finished) {
      found.push_back({status.st_mtim, static_cast<std::uint64_t>(status.st_size), std::string(name)});
    } else if (now - status.st_mtime > unfinished_seconds) {
      ::unlinkat(folder, entry->d_name, 0);
    }
  }
  return found;
}

}  // namespace

std::string cache_file_name(const Digest& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name;
  for (const std::byte value : digest) {
    name += digits[static_cast<unsigned>(value) >> 4];
    name += digits[static_cast<unsigned>(value) & 15];
  }
  return name;
}

ImageCache::ImageCache(const std::string& folder, const Limits& limits)
    : limits_(limits), bytes_since_trim_(limits.bytes) {  // the first store looks at what is there
  if (folder.empty() || limits.bytes == 0) return;
  folder_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status{};
  if (folder_ >= 0 && ::fstat(folder_, &status) == 0 && status.st_uid == ::geteuid() &&
      (status.st_mode & 077) == 0) {
    return;
  }
  std::fprintf(stderr, "the image cache %s is not used: %s\n", folder.c_str(),
               folder_ < 0 ? std::strerror(errno) : "it must be this user's own, with mode 0700");
  if (folder_ >= 0) ::close(folder_);
  folder_ = -1;
}

ImageCache::~ImageCache() {
  if (folder_ >= 0) ::close(folder_);
}

bool ImageCache::load(const Digest& digest, std::uint64_t size, std::vector<std::byte>& out) {
  if (!usable()) return false;
  const std::string name = cache_file_name(digest);
  const wire::Socket file(::openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  // The size is the client's word: nothing is allocated for it before a file says the same.
  if (!file || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) != size) {
    return false;
  }
  out.resize(static_cast<std::size_t>(size) + 1);
  out.back() = std::byte{0};
  const auto content = std::span(out).first(out.size() - 1);
  if (read_all(file.fd(), content) && sha256(content) == digest) {
    ::futimens(file.fd(), nullptr);  // the time of the last use decides who goes when room is needed
    return true;
  }
  std::fprintf(stderr, "the image cache held a damaged file, which is removed\n");
  ::unlinkat(folder_, name.c_str(), 0);
  return false;
}

bool ImageCache::room_for(std::uint64_t bytes) const {
  struct statvfs disk{};
  return ::fstatvfs(folder_, &disk) == 0 &&
         std::uint64_t{disk.f_bavail} * disk.f_frsize >= bytes + limits_.keep_free;
}

void ImageCache::store(const Digest& digest, std::span<const std::byte> content) {
  // One image must not drive out all others.
  if (!usable() || content.size() > limits_.bytes / 2 || !room_for(content.size())) return;
  const std::string name = cache_file_name(digest);
  struct stat status{};
  if (::fstatat(folder_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
      static_cast<std::uint64_t>(status.st_size) == content.size()) {
    ::utimensat(folder_, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    return;
  }
  const std::string fresh =
      std::string(unfinished) + std::to_string(::getpid()) + '-' + std::to_string(next_name_++);
  ::unlinkat(folder_, fresh.c_str(), 0);  // of an earlier process with this number
  const wire::Socket file(
      ::openat(folder_, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  // Not synced to disk: what a power cut spoils does not fit its digest any more.
  if (!write_all(file.fd(), content) || ::renameat(folder_, fresh.c_str(), folder_, name.c_str()) != 0) {
    ::unlinkat(folder_, fresh.c_str(), 0);
    return;
  }
  const std::lock_guard lock(trimming_);
  bytes_since_trim_ += content.size();
  ++files_since_trim_;
  if (bytes_since_trim_ > limits_.bytes / 16 || files_since_trim_ > limits_.files / 16) trim();
}

/// Least recently used first. Other workers may read a file that goes: they have it open.
void ImageCache::trim() {
  const wire::Socket lock(::openat(folder_, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) return;  // another worker is at it
  bytes_since_trim_ = 0;
  files_since_trim_ = 0;
  std::vector<Kept> kept = list(folder_);
  std::uint64_t total = 0;
  for (const Kept& file : kept) total += file.size;
  if (total <= limits_.bytes && kept.size() <= limits_.files) return;
  std::sort(kept.begin(), kept.end(), [](const Kept& left, const Kept& right) {
    return std::pair(left.used.tv_sec, left.used.tv_nsec) < std::pair(right.used.tv_sec, right.used.tv_nsec);
  });
  std::size_t files = kept.size();
  for (const Kept& file : kept) {
    if (total <= limits_.bytes && files <= limits_.files) break;
    ::unlinkat(folder_, file.name.c_str(), 0);
    total -= file.size;
    --files;
  }
}

}  // namespace gpupool::worker
