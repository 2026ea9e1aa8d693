#include "worker/driver/printed_output.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

using gpupool::worker::PrintedOutput;

namespace {

constexpr std::size_t mib = 1 << 20;

std::string lines(std::size_t size) {
  std::string text;
  for (std::size_t n = 0; text.size() < size; ++n) text += std::to_string(n) + '\n';
  text.resize(size);
  return text;
}

void print(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    REQUIRE(written > 0);
    at += static_cast<std::size_t>(written);
  }
}

/// What take() gives until it gives nothing, and its longest piece.
std::string all_of(PrintedOutput& printed, std::size_t& longest) {
  std::string all;
  for (std::string piece; !(piece = printed.take()).empty(); all += piece)
    longest = std::max(longest, piece.size());
  return all;
}

}  // namespace

TEST_CASE("what is longer than a piece comes in several") {
  const std::string text = lines(3 * mib + 12345);
  std::string left, got, more;
  std::size_t longest = 0;
  {
    PrintedOutput printed;
    printed.begin();
    print(text);
    left = printed.rest();
    got = all_of(printed, longest);
    print("more");
    more = all_of(printed, longest);
  }
  CHECK(left == text);
  CHECK(got == text);
  CHECK(longest == PrintedOutput::most_at_once);
  CHECK(more == "more");
}

TEST_CASE("the newest is kept of what nobody takes, and the rest is counted") {
  const std::string text = lines(PrintedOutput::most_kept + 3 * mib);
  std::string left, got, cleared;
  std::size_t longest = 0;
  {
    PrintedOutput printed;
    printed.begin();
    print(text);
    printed.trim();
    printed.trim();
    left = printed.rest();
    got = all_of(printed, longest);
    print("old");
    printed.clear();
    print("new");
    cleared = all_of(printed, longest);
  }
  CHECK(got == left);
  CHECK(got.ends_with(text.substr(3 * mib)));
  const std::string note = got.substr(0, got.size() - PrintedOutput::most_kept);
  CHECK(note.find(std::to_string(3 * mib)) != std::string::npos);
  CHECK(cleared == "new");
}
