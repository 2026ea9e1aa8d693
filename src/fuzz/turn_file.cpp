// The file in which the workers of a device keep its book of turns, with anything in it: what another worker
// of the same user may have written. Nothing of it may end or hang this one.
//
// Input: a byte that says what file; what is repeated in it (at most 64 bytes); operations of 10 bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "enforcer/turn_file.h"
#include "wire/bytes.h"

using namespace gpupool;
using enforcer::BookData;
using enforcer::TurnBook;
using enforcer::TurnFile;

namespace {

constexpr std::size_t header_bytes = 64;  // of the file, before the book
constexpr std::uint64_t magic = 0x32306e7275546770;

struct File {
  File() {
    char name[] = "/tmp/gpupool-fuzz-turns-XXXXXX";
    fd = ::mkstemp(name);
    if (fd < 0) std::abort();
    path = name;
  }
  ~File() {
    ::close(fd);
    ::unlink(path.c_str());
  }
  void hold(const std::vector<std::byte>& bytes) const {
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  int fd = -1;
  std::string path;
};

void use(TurnFile& file, wire::Reader operations) {
  TurnBook book(file.book());
  const auto alive = [&](std::size_t slot) { return file.alive(slot); };
  while (!operations.rest().empty()) {
    const auto what = operations.get<std::uint8_t>();
    const auto slot = what % 2 == 0 ? file.slot() : operations.get<std::uint8_t>();
    const auto value = operations.get<std::uint64_t>();
    switch (what / 2 % 12) {
      case 0:
        book.join(slot, static_cast<std::uint32_t>(value));
        break;
      case 1:
        book.leave(slot);
        break;
      case 2:
        book.want(slot, value);
        break;
      case 3:
        book.withdraw(slot);
        break;
      case 4:
        if (const auto next = book.pass(value, alive); next && !book.has(*next)) std::abort();
        break;
      case 5:
        book.resize(slot, static_cast<std::uint32_t>(value));
        break;
      case 6:
        if (book.take(slot, value) && !book.has(slot)) std::abort();
        break;
      case 7:
        static_cast<void>(book.give_up(slot));
        break;
      case 8:
        book.charge(slot, value);
        break;
      case 9:
        static_cast<void>(book.over(slot, value));
        break;
      case 10:
        static_cast<void>(book.behind(slot));
        break;
      default:
        if (const auto turn = book.turn_ns(slot); turn == 0 || turn > 1'000'000'000) std::abort();
        break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const File only;
  if (size == 0) return 0;
  wire::Reader in(std::as_bytes(std::span(data + 1, size - 1)));
  const auto pattern = in.take(std::min<std::size_t>(64, in.rest().size()));
  std::vector<std::byte> content(data[0] % 4 == 3 ? pattern.size() : header_bytes + sizeof(BookData));
  for (std::size_t n = 0; n < content.size() && !pattern.empty(); ++n)
    content[n] = pattern[n % pattern.size()];
  if (data[0] % 4 < 2 && content.size() >= sizeof(magic)) {
    const std::uint64_t first = data[0] % 4 == 0 ? magic : 0;
    std::memcpy(content.data(), &first, sizeof(first));
  }
  only.hold(content);
  try {
    TurnFile file(only.path);
    use(file, in);
  } catch (const std::runtime_error&) {
    return 0;  // a refusal
  }
  return 0;
}
