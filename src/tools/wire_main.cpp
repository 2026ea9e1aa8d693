// gpupool-bench-wire: what remoting costs on this machine, beside what the wire costs without it.
//
// Every round measures the raw socket and the CUDA call one after the other, so that noise from other
// programs falls on both; with --transport, call and copies over whatever GPUPOOL_TRANSPORT says. Prints one
// JSON object with times in microseconds, rates in MB/s and ratios. Needs GPUPOOL_SESSION_FILE with an
// attached session, and the client runtime as libcuda.so.1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tools/cuda_client.h"
#include "tools/raw_peer.h"
#include "tools/statistics.h"
#include "tools/transport_figures.h"
#include "wire/frame.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t sustained_stream_bytes = 64U << 20;
constexpr std::size_t small_read_bytes = 4;
constexpr std::size_t asks_per_round = 50;
constexpr std::size_t posts_per_batch = 200;
constexpr std::size_t sustained_launches = 5000;
constexpr std::size_t drained_posts = 100'000;
constexpr std::size_t allocation_bytes = 1U << 20;
// A question with one 8-byte field (which context) and an answer without fields, as cuCtxSynchronize has
// them.
constexpr std::size_t question_bytes = sizeof(wire::FrameHeader) + 8;
constexpr std::size_t answer_bytes = sizeof(wire::FrameHeader) + sizeof(wire::ReplyHeader);

struct Figures {
  Samples ping_pong, ask, small_read, post, post_fill, alloc_free, event, sustained, drained;
  Samples raw_up, raw_down, copy_in, copy_out;
};

void measure_calls(RawPeer& raw, CudaClient& cuda, CUdeviceptr memory, Figures& figures) {
  const std::uint64_t before = cuda.asks();
  time_each(figures.ping_pong, asks_per_round, [&] { raw.ping_pong(); });
  time_each(figures.ask, asks_per_round, [&] { cuda.synchronize(); });
  std::uint32_t value = 0;
  time_each(figures.small_read, asks_per_round, [&] { cuda.copy_out(&value, memory, small_read_bytes); });
  if (cuda.asks() - before < 2 * asks_per_round) {
    throw std::runtime_error("a call measured as blocking was answered without a round trip");
  }
  time_batch(figures.post, posts_per_batch, [&] { cuda.launch_empty(); });
  cuda.synchronize();
  time_batch(figures.post_fill, posts_per_batch, [&] { cuda.set_one_byte(memory); });
  cuda.synchronize();
  time_batch(figures.alloc_free, posts_per_batch, [&] { cuda.free(cuda.allocate(allocation_bytes)); });
  cuda.synchronize();
  time_batch(figures.event, posts_per_batch, [&] { cuda.destroy_event(cuda.create_event()); });
  cuda.synchronize();
}

void measure_copies(RawPeer& raw, CudaClient& cuda, CUdeviceptr memory, std::vector<std::byte>& host,
                    Figures& figures) {
  time_each(figures.raw_up, 1, [&] { raw.stream_up(); });
  // A pageable copy may return before the device has it: what counts is when it has.
  time_each(figures.copy_in, 1, [&] {
    cuda.copy_in(memory, host.data(), host.size());
    cuda.synchronize();
  });
  time_each(figures.raw_down, 1, [&] { raw.stream_down(); });
  time_each(figures.copy_out, 1, [&] { cuda.copy_out(host.data(), memory, host.size()); });
  // Posting is cheap because someone else does the work; this is the rate at which worker and device keep up.
  const auto start = Clock::now();
  for (std::size_t i = 0; i < sustained_launches; ++i) cuda.launch_empty();
  cuda.synchronize();
  figures.sustained.add(Clock::now() - start, sustained_launches);
  // The same with posts that are next to nothing for the driver: what the wire itself drains.
  const auto posting = Clock::now();
  for (std::size_t i = 0; i < drained_posts / 2; ++i) cuda.destroy_event(cuda.create_event());
  cuda.synchronize();
  figures.drained.add(Clock::now() - posting, drained_posts);
}

void check_copy(CudaClient& cuda, CUdeviceptr memory, std::vector<std::byte>& host) {
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>((i * 2654435761U) >> 24U);
  const std::vector<std::byte> sent = host;
  cuda.copy_in(memory, host.data(), host.size());
  std::memset(host.data(), 0, host.size());
  cuda.copy_out(host.data(), memory, host.size());
  if (host != sent) throw std::runtime_error("the bytes read back are not the bytes written");
}

double rate(const Samples& samples) {
  return static_cast<double>(sustained_stream_bytes) / samples.median();
}

void print(const Figures& f, std::size_t rounds, const std::string& device) {
  const auto row = [](const char* key, double value) { std::printf("  \"%s\": %.4f,\n", key, value); };
  std::puts("{");
  row("ask_ratio", f.ask.median() / f.ping_pong.median());
  row("post_us", f.post.median());
  row("alloc_free_us", f.alloc_free.median());
  row("event_us", f.event.median());
  row("h2d_ratio", f.raw_up.median() / f.copy_in.median());
  row("d2h_ratio", f.raw_down.median() / f.copy_out.median());
  row("post_per_s", 1e6 / f.drained.median());
  row("ping_pong_us", f.ping_pong.median());
  row("ping_pong_p90_us", f.ping_pong.quantile(0.9));
  row("ask_us", f.ask.median());
  row("ask_p90_us", f.ask.quantile(0.9));
  row("small_read_us", f.small_read.median());
  row("small_read_ratio", f.small_read.median() / f.ping_pong.median());
  row("fill_post_us", f.post_fill.median());
  row("sustained_launch_us", f.sustained.median());
  row("raw_up_mb_s", rate(f.raw_up));
  row("h2d_mb_s", rate(f.copy_in));
  row("raw_down_mb_s", rate(f.raw_down));
  row("d2h_mb_s", rate(f.copy_out));
  std::printf("  \"stream_bytes\": %zu,\n  \"question_bytes\": %zu,\n  \"answer_bytes\": %zu,\n",
              sustained_stream_bytes, question_bytes, answer_bytes);
  std::printf("  \"rounds\": %zu,\n  \"ask_call\": \"cuCtxSynchronize\",\n", rounds);
  std::printf("  \"post_call\": \"cuLaunchKernel of an empty kernel\",\n");
  std::string name;
  for (const char c : device) name += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  std::printf("  \"device\": \"%s\"\n}\n", name.c_str());
}

void run(std::size_t rounds) {
  RawPeer raw(question_bytes, answer_bytes,
              sustained_stream_bytes);  // forks: before the client runtime has threads
  CudaClient cuda;
  std::vector<std::byte> host(sustained_stream_bytes);
  const CUdeviceptr memory = cuda.allocate(sustained_stream_bytes);
  check_copy(cuda, memory, host);

  Figures warm_up;
  measure_calls(raw, cuda, memory, warm_up);
  measure_copies(raw, cuda, memory, host, warm_up);
  Figures figures;
  for (std::size_t round = 0; round < rounds; ++round) {
    measure_calls(raw, cuda, memory, figures);
    if (round % 4 == 0)
      measure_copies(raw, cuda, memory, host, figures);  // one in four: they take most of the time
  }
  cuda.free(memory);
  cuda.synchronize();
  print(figures, rounds, cuda.device_name());
}

}  // namespace
}  // namespace gpupool::bench

int main(int argc, char** argv) {
  std::size_t rounds = 40;
  bool transport = false, known = true;
  for (int n = 1; n < argc; ++n) {
    const std::string_view word = argv[n];
    if (word == "--rounds" && n + 1 < argc) {
      rounds = static_cast<std::size_t>(std::strtoul(argv[++n], nullptr, 10));
    } else if (word == "--transport") {
      transport = true;
    } else {
      known = false;
    }
  }
  if (!known || rounds == 0 || rounds > 100000) {
    std::fputs("usage: gpupool-bench-wire [--transport] [--rounds N]\n", stderr);
    return 2;
  }
  try {
    if (transport) {
      gpupool::bench::print_transport_figures(rounds);
    } else {
      gpupool::bench::run(rounds);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool-bench-wire: %s\n", error.what());
    return 1;
  }
  return 0;
}
