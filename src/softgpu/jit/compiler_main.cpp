// gpupool-softgpu-jit: makes machine code for the program that started it, until that closes its end or has
// asked for nothing for a while. It has one descriptor, its standard input, which is a socket.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "softgpu/jit/compiler_protocol.h"
#include "softgpu/jit/llvm.h"

namespace {

int idle_milliseconds() {
  constexpr long default_seconds = 30, most_seconds = 86'400;
  const char* const text = std::getenv("GPUPOOL_SOFTGPU_JIT_IDLE_SECONDS");
  char* end = nullptr;
  const long given = text == nullptr ? 0 : std::strtol(text, &end, 10);
  const bool valid = text != nullptr && end != text && *end == '\0' && given > 0 && given <= most_seconds;
  return static_cast<int>(1000 * (valid ? given : default_seconds));
}

// Until the program has closed its end, also while LLVM works: a killed program gives no other sign, and a
// large kernel can take minutes of a processor that nobody waits for any more.
void end_with_the_program(int socket) {
  std::thread([socket] {
    pollfd watched{socket, POLLRDHUP, 0};
    while (poll(&watched, 1, -1) < 0 && errno == EINTR) continue;
    _exit(softgpu::jit::exit_without_program);
  }).detach();
}

}  // namespace

int main() {
  using softgpu::jit::MessageKind;
  constexpr int socket_number = 0, niceness = 5;
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(socket_number, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fputs("gpupool-softgpu-jit is started by the software GPU; it is no command\n", stderr);
    return 2;
  }
  // Launches go on meanwhile, in the interpreter.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + niceness);
  std::string why;
  const softgpu::jit::Llvm* const llvm = softgpu::jit::Llvm::get(why);
  if (llvm == nullptr) {
    softgpu::jit::send_message(socket_number, MessageKind::problem, why);
    return 1;
  }
  if (!softgpu::jit::send_message(socket_number, MessageKind::ready, llvm->identity())) return 1;
  const int idle = idle_milliseconds();
  MessageKind kind{};
  std::string text;
  end_with_the_program(socket_number);
  while (softgpu::jit::receive_message(socket_number, kind, text, idle) && kind == MessageKind::text) {
    std::string error;
    const auto object = llvm->compile(text, error);
    const bool sent =
        object ? softgpu::jit::send_message(
                     socket_number, MessageKind::object,
                     std::string_view(reinterpret_cast<const char*>(object->data()), object->size()))
               : softgpu::jit::send_message(socket_number, MessageKind::problem, error);
    if (!sent) _exit(0);
  }
  softgpu::jit::send_message(socket_number, MessageKind::farewell, "it had nothing to do");
  // Without destructors: there is nothing to put in order.
  _exit(0);
}
