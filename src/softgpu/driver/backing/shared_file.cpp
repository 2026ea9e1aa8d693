#include "softgpu/driver/backing/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "softgpu/driver/backing/arena.h"
#include "softgpu/driver/base/error.h"

namespace softgpu::driver {
namespace {

// Its length never changes: memory that is mapped is there.
constexpr int memory_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::string_view memory_name = "softgpu-shared-memory-";  // the card's number follows

// A quarter of the descriptors is for everything else that the process does.
bool many_in_use(int descriptor) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(descriptor) >= limit.rlim_cur / 4 * 3;
}

// The card, from the name that the file was made under; -1 for a file of somebody else.
int card_of(int descriptor) {
  std::array<char, 128> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size() - 1);
  if (length <= 0) return -1;
  std::string_view name(target.data(), static_cast<std::size_t>(length));
  const std::string prefix = "/memfd:" + std::string(memory_name);
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int card = -1;
  std::from_chars(name.data(), name.data() + name.size(), card);
  return card;
}

}  // namespace

std::optional<SharedFile> SharedFile::make(int card, std::size_t size) {
  const std::string name = std::string(memory_name) + std::to_string(card);
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return std::nullopt;
  SharedFile made(descriptor, card, size);
  if (many_in_use(descriptor) || ftruncate(descriptor, static_cast<off_t>(size)) != 0 ||
      fcntl(descriptor, F_ADD_SEALS, memory_seals) != 0) {
    return std::nullopt;
  }
  return made;
}

SharedFile SharedFile::adopt(int descriptor) {
  struct stat status{};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  const int card = card_of(descriptor);
  require(seals >= 0 && (seals & memory_seals) == memory_seals && card >= 0 &&
              fstat(descriptor, &status) == 0 && status.st_size > 0 &&
              static_cast<std::size_t>(status.st_size) % chunk_bytes == 0,
          CUDA_ERROR_INVALID_HANDLE);
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  require(own >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  return {own, card, static_cast<std::size_t>(status.st_size)};
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), card_(other.card_), size_(other.size_) {}

SharedFile::~SharedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int SharedFile::duplicate() const {
  const int made = fcntl(descriptor_, F_DUPFD_CLOEXEC, 3);
  require(made >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  return made;
}

}  // namespace softgpu::driver
