#include "tools/transport_figures.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tools/cuda_client.h"
#include "tools/statistics.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t copy_bytes = 64U << 20;
constexpr std::size_t asks_per_round = 50;

}  // namespace

void print_transport_figures(std::size_t rounds) {
  CudaClient cuda;
  std::vector<std::byte> host(copy_bytes, std::byte{1}), other(copy_bytes, std::byte{2});
  const CUdeviceptr memory = cuda.allocate(copy_bytes);
  Samples ask, copy_in, copy_out, within;
  for (std::size_t round = 0; round <= rounds; ++round) {
    Samples warm_up;
    const bool counts = round > 0;
    time_each(counts ? ask : warm_up, asks_per_round, [&] { cuda.synchronize(); });
    if (round % 4 != 0) continue;
    time_each(counts ? within : warm_up, 1, [&] { std::memcpy(other.data(), host.data(), copy_bytes); });
    time_each(counts ? copy_in : warm_up, 1, [&] {
      cuda.copy_in(memory, host.data(), copy_bytes);
      cuda.synchronize();
    });
    time_each(counts ? copy_out : warm_up, 1, [&] { cuda.copy_out(host.data(), memory, copy_bytes); });
  }
  cuda.free(memory);
  cuda.synchronize();
  const auto rate = [](const Samples& samples) { return static_cast<double>(copy_bytes) / samples.median(); };
  std::printf("{\"ask_us\": %.4f, \"ask_p90_us\": %.4f, ", ask.median(), ask.quantile(0.9));
  std::printf("\"h2d_mb_s\": %.1f, \"d2h_mb_s\": %.1f, ", rate(copy_in), rate(copy_out));
  std::printf("\"memcpy_mb_s\": %.1f, \"copy_ratio\": %.4f}\n", rate(within),
              std::min(rate(copy_in), rate(copy_out)) / rate(within));
}

}  // namespace gpupool::bench
