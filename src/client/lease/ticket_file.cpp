#include "client/lease/ticket_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpupool::client {
namespace {

// Nobody who was given the descriptor can change what others read from it.
constexpr int ticket_seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

CUresult make_ticket_file(const TicketBytes& ticket, int& descriptor) {
  const int made = memfd_create("gpupool-memory-ticket", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (pwrite(made, ticket.data(), ticket.size(), 0) != static_cast<ssize_t>(ticket.size()) ||
      fcntl(made, F_ADD_SEALS, ticket_seals) != 0) {
    close(made);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  descriptor = made;
  return CUDA_SUCCESS;
}

bool read_ticket_file(int descriptor, TicketBytes& ticket) {
  struct stat status{};
  const int found = fcntl(descriptor, F_GET_SEALS);  // fails for everything that is no memory file
  return found >= 0 && (found & ticket_seals) == ticket_seals && fstat(descriptor, &status) == 0 &&
         status.st_size == static_cast<off_t>(ticket.size()) &&
         pread(descriptor, ticket.data(), ticket.size(), 0) == static_cast<ssize_t>(ticket.size());
}

}  // namespace gpupool::client
