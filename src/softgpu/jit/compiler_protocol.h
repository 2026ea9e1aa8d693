// What passes between a program and its compiler process: messages, each a kind and as many bytes as it says.
//
//   compiler -> program  ready      what decides about its code (Llvm::identity), once, at the start
//   program -> compiler  text       text of LLVM's intermediate language
//   compiler -> program  object     an ELF object
//   compiler -> program  problem    a sentence, in place of either
//   compiler -> program  farewell   nobody has asked for long: it ends
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace softgpu::jit {

enum class MessageKind : uint32_t { ready = 1, text, object, problem, farewell };

struct MessageHead {
  MessageKind kind;
  uint32_t reserved = 0;
  uint64_t bytes;
};
// Of a compiler process whose program is gone.
inline constexpr int exit_without_program = 3;
inline constexpr uint64_t most_message_bytes = uint64_t{256} << 20;

// Without SIGPIPE: the program's own signals are its own.
inline bool send_all(int socket, const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t put = ::send(socket, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

inline bool send_message(int socket, MessageKind kind, std::string_view body) {
  const MessageHead head{kind, 0, body.size()};
  return send_all(socket, &head, sizeof head) && send_all(socket, body.data(), body.size());
}

// `patience_ms` is for each piece; negative: for ever. False at the end, at an error, and when it is over.
inline bool receive_all(int socket, void* data, size_t size, int patience_ms) {
  auto* at = static_cast<char*>(data);
  while (size != 0) {
    pollfd waiting{socket, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(socket, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

inline bool receive_message(int socket, MessageKind& kind, std::string& body, int patience_ms) {
  MessageHead head{};
  if (!receive_all(socket, &head, sizeof head, patience_ms) || head.bytes > most_message_bytes) return false;
  kind = head.kind;
  body.resize(head.bytes);
  return receive_all(socket, body.data(), body.size(), patience_ms);
}

}  // namespace softgpu::jit
