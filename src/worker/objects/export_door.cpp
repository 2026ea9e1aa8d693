#include "worker/objects/export_door.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>

#include "wire/transport/descriptor_message.h"
#include "wire/transport/local_socket.h"
#include "worker/lease/handshake.h"

namespace gpupool::worker {
namespace {

constexpr std::uint32_t door_magic = 0x44455047;  // "GPED"
constexpr std::uint32_t door_version = 1;
constexpr int patience_seconds = 3;

struct Question {
  std::uint32_t magic = door_magic;
  std::uint32_t version = door_version;
  UserKey user{};
  ExportTicket ticket;
};

struct Reply {
  std::uint32_t magic = door_magic;
  std::int32_t result = CUDA_ERROR_INVALID_HANDLE;
  std::uint32_t kind = 0;
  std::uint32_t has_descriptor = 0;
  std::array<char, 32> uuid{};
  std::uint64_t size = 0, offset = 0, length = 0, pool = 0;
  CUipcEventHandle event{};
};

sockaddr_un door_address(const std::array<std::uint8_t, 16>& office, socklen_t& length) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string name = "gpupool-export-";
  for (const std::uint8_t byte : office) {
    name += digits[byte >> 4U];
    name += digits[byte & 15U];
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero: the abstract namespace
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool same_system_user(int fd) {
  return wire::peer_user(fd) == geteuid();
}

void limit_waiting(int fd) {
  const timeval limit{patience_seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace

std::array<std::uint8_t, 16> random_office() {
  std::array<std::uint8_t, 16> made{};
  if (getrandom(made.data(), made.size(), 0) != static_cast<ssize_t>(made.size())) {
    throw std::runtime_error("the system gives no random numbers");
  }
  return made;
}

ExportDoor::ExportDoor(const std::array<std::uint8_t, 16>& office, const UserKey& user,
                       const ExportTable& exports)
    : office_(office), user_(user), exports_(exports) {}

ExportDoor::~ExportDoor() {
  if (!listener_) return;
  shutdown(listener_.fd(), SHUT_RDWR);  // wakes the thread
  thread_.join();
}

bool ExportDoor::open() {
  if (listener_) return true;
  wire::Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = door_address(office_, length);
  if (!made || bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(made.fd(), 64) != 0) {
    return false;
  }
  listener_ = std::move(made);
  thread_ = std::thread([this] { run(); });
  return true;
}

void ExportDoor::run() {
  for (;;) {
    const wire::Socket visitor(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!visitor) {
      if (errno == EINVAL || errno == EBADF) return;  // shut down
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    if (!same_system_user(visitor.fd())) continue;
    limit_waiting(visitor.fd());
    answer(visitor);
  }
}

void ExportDoor::answer(const wire::Socket& visitor) {
  Question question;
  wire::Socket unwanted;
  if (!wire::receive_with_descriptor(visitor.fd(), std::as_writable_bytes(std::span(&question, 1)), unwanted))
    return;
  if (question.magic != door_magic || question.version != door_version) return;
  Reply reply;
  std::shared_ptr<PhysicalMemory> memory;
  const auto ticket = ExportTicket::read(question.ticket.as_bytes());
  std::optional<Export> found;
  if (ticket && equal_secrets(question.user, user_)) found = exports_.find(*ticket);
  if (found) {
    memory = found->memory.lock();
    const bool needs_memory = found->kind == ExportKind::memory || found->kind == ExportKind::physical;
    if (!needs_memory || (memory != nullptr && memory->descriptor() >= 0)) {
      reply.result = CUDA_SUCCESS;
      reply.kind = static_cast<std::uint32_t>(found->kind);
      reply.has_descriptor = needs_memory ? 1 : 0;
      std::copy_n(found->uuid.begin(), std::min(found->uuid.size(), reply.uuid.size()), reply.uuid.begin());
      reply.size = needs_memory ? memory->size() : 0;
      reply.offset = found->offset;
      reply.length = found->length;
      reply.pool = found->pool;
      reply.event = found->event_handle;
    }
  }
  static_cast<void>(wire::send_with_descriptor(visitor.fd(), std::as_bytes(std::span(&reply, 1)),
                                               reply.has_descriptor != 0 ? memory->descriptor() : -1));
}

CUresult fetch_export(const ExportTicket& ticket, const UserKey& user, FetchedExport& out) {
  const wire::Socket door(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!door) return CUDA_ERROR_OPERATING_SYSTEM;
  limit_waiting(door.fd());
  socklen_t length = 0;
  const sockaddr_un address = door_address(ticket.office, length);
  if (connect(door.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      !same_system_user(door.fd())) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Question question;
  question.user = user;
  question.ticket = ticket;
  Reply reply;
  if (!wire::send_with_descriptor(door.fd(), std::as_bytes(std::span(&question, 1)), -1) ||
      !wire::receive_with_descriptor(door.fd(), std::as_writable_bytes(std::span(&reply, 1)), out.descriptor))
    return CUDA_ERROR_INVALID_HANDLE;
  if (reply.magic != door_magic || reply.result != CUDA_SUCCESS || reply.kind != ticket.kind)
    return CUDA_ERROR_INVALID_HANDLE;
  const bool needs_memory = static_cast<ExportKind>(reply.kind) == ExportKind::memory ||
                            static_cast<ExportKind>(reply.kind) == ExportKind::physical;
  if (needs_memory != (reply.has_descriptor != 0) || needs_memory != static_cast<bool>(out.descriptor))
    return CUDA_ERROR_INVALID_HANDLE;
  if (needs_memory &&
      (reply.size == 0 || reply.offset > reply.size || reply.length > reply.size - reply.offset)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  out.object.kind = static_cast<ExportKind>(reply.kind);
  out.object.uuid.assign(reply.uuid.data(), strnlen(reply.uuid.data(), reply.uuid.size()));
  out.object.offset = reply.offset;
  out.object.length = reply.length;
  out.object.pool = reply.pool;
  out.object.event_handle = reply.event;
  out.size = reply.size;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
