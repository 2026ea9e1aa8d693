// How a client finds its worker: one line of text that the node makes and everybody else passes on.
//
//   host:port[ key=value]...
//
// `local` is the path of the worker's Unix socket on its own machine, `tls` the SHA-256 fingerprint of the
// one certificate that the worker shows; without it the connection is not encrypted. Unknown keys are
// skipped.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpupool::wire {

using Fingerprint = std::array<std::uint8_t, 32>;

struct WorkerAddress {
  std::string tcp;  ///< host:port
  std::string local;
  std::optional<Fingerprint> tls;

  /// False and `error` for what is no such line.
  [[nodiscard]] static bool parse(std::string_view text, WorkerAddress& out, std::string& error);
};

}  // namespace gpupool::wire
