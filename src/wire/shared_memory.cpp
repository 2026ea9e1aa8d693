#include "wire/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

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
  if (!descriptor || posix_fallocate(descriptor.fd(), 0, static_cast<off_t>(whole(ring_bytes))) != 0 ||
      fcntl(descriptor.fd(), F_ADD_SEALS, needed_seals) != 0) {
    error = std::string("no shared memory: ") + std::strerror(errno);
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
  iovec part{&announcement, sizeof(announcement)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor_.fd();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  descriptor_.close();
  return sent == static_cast<ssize_t>(sizeof(announcement));
}

std::optional<SharedMemory> SharedMemory::receive(int socket, std::string& error) {
  Announcement announcement{};
  iovec part{&announcement, sizeof(announcement)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};  // more descriptors than one are not delivered
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  Socket descriptor;
  if (got >= 0) {
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
      descriptor = Socket(fd);
    }
  }
  if (got != static_cast<ssize_t>(sizeof(announcement)) || !descriptor || announcement.magic != magic ||
      announcement.version != layout_version) {
    error = "the worker gave no shared memory";
    return std::nullopt;
  }
  return map(std::move(descriptor), announcement.ring_bytes, error);
}

}  // namespace gpupool::wire
