// What another process orders: what was sent to it comes before what it answers. ThreadSanitizer sees one
// process only, and is told here; in other builds nothing is added.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace gpupool {

#ifdef __SANITIZE_THREAD__
inline char of_other_process;

/// Before the other process can see what was written for it.
inline void gives_other_process() {
  __tsan_release(&of_other_process);
}
/// After something of the other process was seen.
inline void takes_from_other_process() {
  __tsan_acquire(&of_other_process);
}
/// As sendmsg, of which the sanitizer notes what was read when it has returned: the answer may have come by
/// then.
inline ssize_t send_message(int socket, const msghdr& message, int flags) {
  for (std::size_t n = 0; n < message.msg_iovlen; ++n)
    __tsan_read_range(message.msg_iov[n].iov_base, static_cast<long>(message.msg_iov[n].iov_len));
  gives_other_process();
  return syscall(SYS_sendmsg, socket, &message, flags);
}
#else
inline void gives_other_process() {}
inline void takes_from_other_process() {}
inline ssize_t send_message(int socket, const msghdr& message, int flags) {
  return sendmsg(socket, &message, flags);
}
#endif

}  // namespace gpupool
