#include "client/process/own_addresses.h"

#include <sys/mman.h>

#include <string>

#include "doctest/doctest.h"

using namespace gpupool::client;

TEST_CASE("a range is free when no line of the map touches it") {
  const std::string maps =
      "600000000000-600000010000 rw-p 00000000 00:00 0 [heap]\n"
      "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 /lib/a b.so\n";
  CHECK(is_free(maps, 0x300000000000, 0x310000000000));
  CHECK(is_free(maps, 0x600000010000, 0x610000000000));
  CHECK(is_free(maps, 0x500000000000, 0x600000000000));
  CHECK_FALSE(is_free(maps, 0x500000000000, 0x600000000001));
  CHECK_FALSE(is_free(maps, 0x60000000ffff, 0x610000000000));
  CHECK_FALSE(is_free(maps, 0x7e0000000000, 0x7f8000000000));
  CHECK_FALSE(is_free("", 0x1000, 0x2000));
  CHECK_FALSE(is_free("no map\n", 0x1000, 0x2000));
}

TEST_CASE("what is taken here is passed by") {
  constexpr std::uint64_t size = 1 << 20;
  void* const taken = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(taken != MAP_FAILED);
  void* const gone = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  REQUIRE(munmap(gone, size) == 0);
  const auto occupied = reinterpret_cast<std::uint64_t>(taken),
             free_one = reinterpret_cast<std::uint64_t>(gone);
  const std::uint64_t wishes[] = {occupied, free_one}, only[] = {occupied};
  CHECK(first_free(wishes, 4096) == free_one);
  CHECK(first_free(only, 4096) == occupied);
  munmap(taken, size);
}
