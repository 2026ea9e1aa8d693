// The stream over shared memory, client's end and worker's, with another process behind the memory that does
// with it what it likes: the announcement that brings the memory, then the positions and the bytes in it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "wire/bytes.h"
#include "wire/receiver.h"
#include "wire/transport/shared_memory_stream.h"

using namespace gpupool;

namespace {

constexpr std::uint64_t ring_bytes = wire::SharedMemory::header_bytes;  // the least that there is
constexpr std::size_t announcement_bytes = 16;

void must(bool holds) {
  if (!holds) std::abort();
}

struct Pair {
  Pair() {
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    near = wire::Socket(fds[0]);
    far = wire::Socket(fds[1]);
  }
  wire::Socket near, far;
};

/// Descriptors that are and are not what the client must insist on.
wire::Socket descriptor(std::uint8_t which) {
  constexpr std::size_t right = wire::SharedMemory::header_bytes + 2 * ring_bytes;
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  off_t size = right;
  switch (which % 8) {
    case 0:
      return wire::Socket(open("/dev/zero", O_RDWR | O_CLOEXEC));
    case 1: {
      int ends[2];
      must(pipe2(ends, O_CLOEXEC) == 0);
      close(ends[1]);
      return wire::Socket(ends[0]);
    }
    case 2:
      seals = F_SEAL_SHRINK;
      break;
    case 3:
      seals = F_SEAL_GROW | F_SEAL_SEAL;
      break;
    case 4:
      size = right - 4096;
      break;
    case 5:
      size = right + 4096;
      break;
    default:
      break;  // as it should be
  }
  wire::Socket made(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  must(made && ftruncate(made.fd(), size) == 0 && fcntl(made.fd(), F_ADD_SEALS, seals) == 0);
  return made;
}

/// A worker that announces anything, with any descriptors.
void announce(wire::Reader& in) {
  const auto which = in.get<std::uint8_t>();
  const auto count = static_cast<std::size_t>(in.get<std::uint8_t>() % 4);
  std::array<std::byte, announcement_bytes> said{};
  const auto given = in.take(std::min(in.rest().size(), said.size()));
  std::copy(given.begin(), given.end(), said.begin());
  Pair pair;
  iovec part{said.data(), given.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::array<wire::Socket, 3> descriptors;
  std::array<int, 3> numbers{};
  for (std::size_t n = 0; n < count; ++n) {
    descriptors[n] = descriptor(static_cast<std::uint8_t>(which >> n));
    numbers[n] = descriptors[n].fd();
  }
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), numbers.data(), count * sizeof(int));
  }
  if (part.iov_len > 0) must(sendmsg(pair.far.fd(), &message, MSG_NOSIGNAL) >= 0);
  pair.far.close();
  std::string error;
  auto memory = wire::SharedMemory::receive(pair.near.fd(), error);
  must(memory || !error.empty());
  if (!memory) return;
  must(memory->ring_bytes() == ring_bytes);  // no other size fits a descriptor from above
  std::memset(memory->at(), 1, wire::SharedMemory::header_bytes + 2 * ring_bytes);
}

/// The end under test, and the memory as the other process sees it.
class Stream {
 public:
  explicit Stream(bool at_worker) {
    std::string error;
    if (at_worker) {
      stream_ = wire::SharedMemoryStream::offer(pair_.near, error, ring_bytes);
      must(stream_ != nullptr);
      auto memory = wire::SharedMemory::receive(pair_.far.fd(), error);
      must(memory.has_value());
      foreign_.emplace(std::move(*memory));
    } else {
      auto made = wire::SharedMemory::make(ring_bytes, error);
      must(made && made->send(pair_.far.fd()));
      foreign_.emplace(std::move(*made));
      auto memory = wire::SharedMemory::receive(pair_.near.fd(), error);
      must(memory.has_value());
      stream_ = std::make_unique<wire::SharedMemoryStream>(std::move(pair_.near), std::move(*memory),
                                                           wire::SharedMemoryStream::Side::client);
    }
    in_ = indices(at_worker ? 0 : 1);
    out_ = indices(at_worker ? 1 : 0);
    in_data_ = foreign_->at() + wire::SharedMemory::header_bytes + (at_worker ? 0 : ring_bytes);
  }

  void run(wire::Reader& in) {
    wire::Receiver receiver(*stream_);
    while (!in.rest().empty()) {
      switch (in.get<std::uint8_t>() % 10) {
        case 0: {  // as an honest end would: bytes, then the position
          const std::size_t count = in.get<std::uint8_t>();
          const auto bytes = in.take(std::min(count, in.rest().size()));
          for (const auto byte : bytes) in_data_[head_++ % ring_bytes] = byte;
          in_->head.store(head_);
          break;
        }
        case 1:
          head_ = in.get<std::uint64_t>();
          in_->head.store(head_);
          break;
        case 2:
          out_->tail.store(in.get<std::uint64_t>());
          break;
        case 3:
          in_->reader_asleep = in.get<std::uint8_t>();
          in_->writer_asleep = in.get<std::uint8_t>();
          out_->reader_asleep = in.get<std::uint8_t>();
          out_->writer_asleep = in.get<std::uint8_t>();
          break;
        case 4:
          in_->tail.store(in.get<std::uint64_t>());
          out_->head.store(in.get<std::uint64_t>());
          break;
        case 5:
          out_->tail.store(sent_);
          break;
        case 6:
          send(in.get<std::uint16_t>());
          break;
        case 7:
          static_cast<void>(stream_->holds_unread());
          static_cast<void>(stream_->readable(0));
          static_cast<void>(stream_->hung_up());
          break;
        case 8:
          receive(in.get<std::uint16_t>());
          break;
        default:
          read_frames(receiver);
          return;
      }
    }
  }

 private:
  wire::RingIndices* indices(std::size_t ring) {
    return reinterpret_cast<wire::RingIndices*>(foreign_->at() + ring * sizeof(wire::RingIndices));
  }
  /// Unless it would wait for room, for which nobody cares here.
  void send(std::size_t size) {
    const std::uint64_t used = sent_ - out_->tail.load();
    if (used <= ring_bytes && size > ring_bytes - used) return;
    const std::vector<std::byte> bytes(size);
    if (stream_->send(bytes)) sent_ += size;
  }
  void receive(std::size_t room) {
    if (room == 0 || !stream_->readable(0)) return;
    std::vector<std::byte> into(room);
    must(stream_->receive_some(into.data(), room) <= room);
  }
  /// To the end, which comes at once behind what is there.
  void read_frames(wire::Receiver& receiver) {
    pair_.far.close();
    wire::FrameHeader header{};
    std::span<const std::byte> body;
    while (receiver.receive(header, body)) {
      if ((header.flags & wire::flag_bulk) != 0) {
        std::uint64_t payload = 0;
        must(wire::read_front(body.last(sizeof(payload)), payload));
        if (!receiver.skip(payload)) break;
      }
    }
  }

  Pair pair_;
  std::optional<wire::SharedMemory> foreign_;
  std::unique_ptr<wire::Stream> stream_;
  wire::RingIndices* in_ = nullptr;   // what the end under test reads
  wire::RingIndices* out_ = nullptr;  // what it writes
  std::byte* in_data_ = nullptr;
  std::uint64_t head_ = 0, sent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  wire::Reader in(std::as_bytes(std::span(data, size)));
  const auto which = in.get<std::uint8_t>() % 4;
  if (which == 0) {
    announce(in);
  } else {
    Stream(which == 1).run(in);
  }
  return 0;
}
