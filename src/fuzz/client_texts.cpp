// What the client reads from files and from its own counters.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "client/lease/session_file.h"
#include "nvml/client_runtime.h"
#include "nvml/session_profile.h"
#include "profile/device_profile.h"
#include "wire/transport/worker_address.h"

using namespace gpupool;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0: {
      std::string error;
      wire::WorkerAddress address;
      if (const auto file = client::parse_session_file(text, error)) {
        for (std::size_t n = 0; n <= file->workers(); ++n) {
          static_cast<void>(wire::WorkerAddress::parse(file->of_worker(n).address, address, error));
        }
      }
      static_cast<void>(wire::WorkerAddress::parse(text, address, error));
      return 0;
    }
    case 1:
      try {
        const auto profile = parse_profile(text);
        // What was read can be written, and reads the same.
        if (format_profile(parse_profile(format_profile(profile))) != format_profile(profile))
          __builtin_trap();
      } catch (const std::exception&) {
        return 0;  // a refusal
      }
      return 0;
    case 2:
      static_cast<void>(nvml::parse_session(text));
      return 0;
    default:
      static_cast<void>(nvml::parse_counters(text));
      return 0;
  }
}
