#include "wire/transport/worker_address.h"

#include <charconv>

namespace gpupool::wire {
namespace {

bool read_hex(std::string_view text, Fingerprint& out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t n = 0; n < out.size(); ++n) {
    const char* const pair = text.data() + 2 * n;
    const auto [end, error] = std::from_chars(pair, pair + 2, out[n], 16);
    if (error != std::errc{} || end != pair + 2) return false;
  }
  return true;
}

}  // namespace

bool WorkerAddress::parse(std::string_view text, WorkerAddress& out, std::string& error) {
  out = {};
  const auto next_word = [&text] {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return word;
  };
  out.tcp = next_word();
  if (out.tcp.find(':') == std::string::npos) {
    error = "the worker's address is not host:port";
    return false;
  }
  while (!text.empty()) {
    const std::string_view word = next_word();
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    if (key == "local") {
      out.local = value;
    } else if (key == "tls") {
      // Not to be skipped when it is unreadable: without it the token would travel in the clear.
      if (!read_hex(value, out.tls.emplace())) {
        error = "the fingerprint in the worker's address is not 64 hexadecimal digits";
        return false;
      }
    }
  }
  return true;
}

}  // namespace gpupool::wire
