#include "wire/transport/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "wire/transport/descriptor_message.h"

namespace gpupool::wire {
namespace {

constexpr std::uint32_t magic = 0x4d535047;  // "GPSM"
constexpr std::uint32_t layout_version = 1;

struct Announcement {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t ring_bytes;
};

constexpr int needed_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t whole(std::uint64_t ring_bytes) {
  return SharedMemory::header_bytes + 2 * static_cast<std::size_t>(ring_bytes);
}

bool possible(std::uint64_t ring_bytes) {
  return std::has_single_bit(ring_bytes) && ring_bytes >= SharedMemory::header_bytes &&
         ring_bytes <= SharedMemory::max_ring_bytes;
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      at_(std::exchange(other.at_, nullptr)),
      ring_bytes_(other.ring_bytes_) {}

SharedMemory::~SharedMemory() {
  if (at_ != nullptr) munmap(at_, whole(ring_bytes_));
}

std::optional<SharedMemory> SharedMemory::make(std::uint64_t ring_bytes, std::string& error) {
  Socket descriptor(memfd_create("gpupool-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // fallocate, not ftruncate: pages that are promised and not there would be a SIGBUS when they are touched.
  int problem = descriptor ? 0 : errno;
  if (problem == 0) {
    do {
      problem = posix_fallocate(descriptor.fd(), 0, static_cast<off_t>(whole(ring_bytes)));
    } while (problem == EINTR);
  }
  if (problem == 0 && fcntl(descriptor.fd(), F_ADD_SEALS, needed_seals) != 0) problem = errno;
  if (problem != 0) {
    error = std::string("no shared memory: ") + std::strerror(problem);
    return std::nullopt;
  }
  return map_checked(std::move(descriptor), ring_bytes, error);
}

std::optional<SharedMemory> SharedMemory::map(Socket descriptor, std::uint64_t ring_bytes,
                                              std::string& error) {
  struct stat status{};
  struct statfs system{};
  const int seals = fcntl(descriptor.fd(), F_GET_SEALS);
  if (!possible(ring_bytes) || seals < 0 || (seals & needed_seals) != needed_seals ||
      fstat(descriptor.fd(), &status) != 0 || status.st_size != static_cast<off_t>(whole(ring_bytes)) ||
      fstatfs(descriptor.fd(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    error = "the worker's shared memory is not sealed memory of the announced size";
    return std::nullopt;
  }
  auto mapped = map_checked(std::move(descriptor), ring_bytes, error);
  if (mapped) mapped->descriptor_.close();
  return mapped;
}

std::optional<SharedMemory> SharedMemory::map_checked(Socket descriptor, std::uint64_t ring_bytes,
                                                      std::string& error) {
  void* const at =
      mmap(nullptr, whole(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor.fd(), 0);
  if (at == MAP_FAILED) {
    error = std::string("cannot map shared memory: ") + std::strerror(errno);
    return std::nullopt;
  }
  return SharedMemory(std::move(descriptor), static_cast<std::byte*>(at), ring_bytes);
}

bool SharedMemory::send(int socket) {
  Announcement announcement{magic, layout_version, ring_bytes_};
  const bool sent =
      send_with_descriptor(socket, std::as_bytes(std::span(&announcement, 1)), descriptor_.fd());
  descriptor_.close();
  return sent;
}

std::optional<SharedMemory> SharedMemory::receive(int socket, std::string& error) {
  Announcement announcement{};
  Socket descriptor;
  const bool got =
      receive_with_descriptor(socket, std::as_writable_bytes(std::span(&announcement, 1)), descriptor);
  if (!got || !descriptor || announcement.magic != magic || announcement.version != layout_version) {
    error = "the worker gave no shared memory";
    return std::nullopt;
  }
  return map(std::move(descriptor), announcement.ring_bytes, error);
}

}  // namespace gpupool::wire
