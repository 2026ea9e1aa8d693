#include "client/lease/ticket_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gpupool::client;

TEST_CASE("a descriptor carries a ticket, and nobody can change it") {
  TicketBytes ticket{}, read{};
  ticket[0] = std::byte{1};
  ticket[63] = std::byte{2};
  int descriptor = -1;
  REQUIRE(make_ticket_file(ticket, descriptor) == CUDA_SUCCESS);
  CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(pwrite(descriptor, "x", 1, 0) < 0);
  const int passed = dup(descriptor);
  close(descriptor);
  CHECK(read_ticket_file(passed, read));
  CHECK(read == ticket);
  close(passed);
}

TEST_CASE("descriptors of other things are no tickets") {
  TicketBytes read{};
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int open_file = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(ftruncate(open_file, 64) == 0);
  for (const int other : {-1, ends[0], open_file, 9999}) CHECK_FALSE(read_ticket_file(other, read));
  CHECK(fcntl(open_file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK(read_ticket_file(open_file,
                         read));  // 64 sealed bytes: whether they are a ticket is the worker's to say
  for (const int end : {ends[0], ends[1], open_file}) close(end);
}
