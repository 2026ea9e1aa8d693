// gpupool-worker: executes the GPU calls of one session against a driver, under the lease that the node agent
// controls.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "base/text_fields.h"
#include "worker/process/client_door.h"
#include "worker/process/client_seat.h"
#include "worker/process/control_server.h"
#include "worker/process/exit_status.h"
#include "worker/process/orphans.h"
#include "worker/process/probe.h"
#include "worker/process/process_setup.h"
#include "worker/process/session_host.h"
#include "worker/process/start_record.h"
#include "worker/process/takeovers.h"

namespace gpupool::worker {
namespace {

constexpr int start_record_ms = 10'000;
/// How long the end of a session waits for what the worker says last: on a busy machine that takes a while,
/// and a user waits for a second at most.
constexpr std::chrono::milliseconds last_words{800};

constexpr const char* usage_text =
    "usage: gpupool-worker --driver PATH --control SOCKET [--listen HOST:PORT|HOST:FIRST-LAST] [--local "
    "SOCKET]   start "
    "record on stdin\n"
    "       gpupool-worker --driver PATH --probe                                 print the driver's devices\n"
    "options:\n"
    "  --warm                     initialise the driver first, then wait for the start record for as long as "
    "stdin is "
    "open\n"
    "  --tls auto|on|off          encrypt TCP connections; auto: unless only this machine can connect "
    "(auto)\n"
    "  --client-grace-seconds N   how long a lost client may take to come back (60)\n"
    "  --orphan-exit-seconds N    how long to live on without lease and node agent (600)\n";

struct Options {
  std::string driver, control;
  std::string local;  // Unix socket for clients of this machine; empty: none
  std::string listen = "127.0.0.1:0";
  TlsUse tls = TlsUse::automatic;
  bool probe = false;
  bool warm = false;  // started ahead, for a session that is not known yet
  ControlTimers timers;
};

std::optional<Options> parse_options(int argc, char** argv) {
  constexpr option known[] = {{"driver", required_argument, nullptr, 'd'},
                              {"control", required_argument, nullptr, 'c'},
                              {"listen", required_argument, nullptr, 'l'},
                              {"local", required_argument, nullptr, 'u'},
                              {"tls", required_argument, nullptr, 't'},
                              {"probe", no_argument, nullptr, 'p'},
                              {"warm", no_argument, nullptr, 'w'},
                              {"client-grace-seconds", required_argument, nullptr, 'g'},
                              {"orphan-exit-seconds", required_argument, nullptr, 'o'},
                              {nullptr, 0, nullptr, 0}};
  Options options;
  for (int choice = 0; (choice = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    const auto seconds = [] {
      const auto value = parse_number<std::int64_t>(optarg);
      return value && *value >= 0 && *value <= 1'000'000 ? std::optional(*value * 1000) : std::nullopt;
    };
    switch (choice) {
      case 'd':
        options.driver = optarg;
        break;
      case 'c':
        options.control = optarg;
        break;
      case 'l':
        options.listen = optarg;
        break;
      case 'u':
        options.local = optarg;
        break;
      case 't': {
        const std::string_view word = optarg;
        if (word != "auto" && word != "on" && word != "off") return std::nullopt;
        options.tls = word == "on" ? TlsUse::on : word == "off" ? TlsUse::off : TlsUse::automatic;
        break;
      }
      case 'p':
        options.probe = true;
        break;
      case 'w':
        options.warm = true;
        break;
      case 'g':
      case 'o': {
        const auto ms = seconds();
        if (!ms) return std::nullopt;
        (choice == 'g' ? options.timers.client_grace_ms : options.timers.orphan_exit_ms) = *ms;
        break;
      }
      default:
        return std::nullopt;
    }
  }
  if (optind != argc || options.driver.empty() || (!options.probe && options.control.empty()))
    return std::nullopt;
  return options;
}

void say(int fd, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
}

void fill(WorkerState& state, const StartRecord& record, ControlTimers& timers) {
  timers.lease_end = LeaseEndTimers::of_grace(record.drain_ms * 1'000'000);
  state.session_id = record.session;
  state.token = record.token;
  state.move_key = record.move_key;
  state.devices = record.devices;
  state.user = record.user;
  state.image_cache = record.image_cache;
  state.image_cache_mib = record.image_cache_mib;
  state.mps = record.mps;
  state.resume_folder = record.image;
  state.resume_from = record.image_from;
  for (const DeviceShare& device : record.devices) {
    if (device.mib <= record.context_reserve_mib) {
      throw std::runtime_error("a share of " + std::to_string(device.mib) + " MiB has no room beside the " +
                               std::to_string(record.context_reserve_mib) +
                               " MiB that the driver takes for a context");
    }
    state.memory.emplace_back(device.mib << 20U, record.context_reserve_mib << 20U);
    state.milli.emplace_back(device.milli);
  }
  if (state.gate.begin(record.epoch, record.deadline_ns) != LeaseAnswer::ok) {
    throw std::runtime_error("the start record's epoch is not valid");
  }
}

/// Runs until `stop`, a signal or the orphan's exit; returns the process's exit status. Throws
/// std::runtime_error before the ready line only.
int serve(const Options& options, int answer) {
  // Never destroyed: the serving and the door threads use them until the process ends.
  auto& state = *new WorkerState;
  if (options.warm) {
    warm_up(options.driver);
    await_start_record(STDIN_FILENO);
  }
  ControlTimers timers = options.timers;
  fill(state, parse_start_record(read_start_record(STDIN_FILENO, start_record_ms)), timers);
  release_stdin();

  auto& control = *new ControlServer(options.control, timers, state);
  const struct Removal {
    const ControlServer& server;
    const std::string& local;
    ~Removal() {
      server.remove_socket();
      if (!local.empty()) ::unlink(local.c_str());
    }
  } removal{control, options.local};
  auto& seat = *new ClientSeat([&control] { control.wake(); });
  auto& door = *new ClientDoor(options.listen, options.local, options.tls, state, seat);

  // The driver is opened on the thread that will use it: current contexts belong to threads.
  std::promise<SessionHost*> opened;
  std::future<SessionHost*> host = opened.get_future();
  std::thread([&] {
    std::unique_ptr<SessionHost> session;
    try {
      session = SessionHost::open(options.driver, state);
    } catch (...) {
      opened.set_exception(std::current_exception());
      return;
    }
    SessionHost& running = *session.release();
    opened.set_value(&running);
    seat.run([&running](wire::Stream& stream, std::span<const std::byte> hello) {
      return running.serve(stream, hello);
    });
  }).detach();
  SessionHost& running = *host.get();

  auto& takeovers = *new Takeovers([&running, &control](wire::Stream& stream) {
    const MoveResult result = running.hand_over(stream);
    if (result.lost) {
      std::fputs("gpupool-worker: the session's memory is lost: ending\n", stderr);
      control.end(0);
    } else if (result.brought_back) {
      control.put_away();
    }
  });
  door.on_takeover(
      [&takeovers](std::unique_ptr<wire::Stream> stream) { takeovers.receive(std::move(stream)); });
  // The node agent hears of the device time first. But whoever says it asks the session and the driver, and
  // both may be stuck; what they hold goes with the process.
  door.on_end([&] {
    control.end(reset_exit);
    std::this_thread::sleep_for(last_words);
    control.remove_socket();
    if (!options.local.empty()) ::unlink(options.local.c_str());
    end_orphans();
    std::_Exit(reset_exit);
  });
  std::thread([&door] { door.run(); }).detach();
  say(answer, "ready port=" + std::to_string(door.port()) + " pid=" + std::to_string(::getpid()) +
                  (door.fingerprint().empty() ? "" : " tls=" + door.fingerprint()));
  ::close(answer);
  return control.run(running, seat);
}

}  // namespace
}  // namespace gpupool::worker

int main(int argc, char** argv) {
  using namespace gpupool::worker;
  const auto options = parse_options(argc, argv);
  if (!options) {
    std::fputs(usage_text, stderr);
    return 2;
  }
  if (options->probe) return probe_main(options->driver);
  int answer = STDOUT_FILENO;
  int status = 0;
  try {
    answer = set_up_process();
    adopt_orphans();
    status = serve(*options, answer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool-worker: %s\n", error.what());
    say(answer, std::string("error ") + error.what());
    status = 1;
  }
  // Threads still run inside the driver; nothing they hold outlives the process.
  end_orphans();
  std::fflush(nullptr);
  std::_Exit(status);
}
