#include "client/runtime.h"

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "client/arriving_copies.h"
#include "client/call.h"
#include "client/host_functions.h"
#include "client/log.h"
#include "client/process_mark.h"
#include "client/share_news.h"
#include "generated/message_ids.h"

namespace gpupool::client {
namespace {

#ifdef __SANITIZE_ADDRESS__  // its heap lies at the other
constexpr std::uint64_t arena_wish = 0x0000'3000'0000'0000;
#else
constexpr std::uint64_t arena_wish = 0x0000'6000'0000'0000;
#endif

const char* session_file_path() {
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  return path != nullptr && *path != '\0' ? path : nullptr;
}

constexpr int lease_timeout_ms = 10'000;
constexpr int stats_timeout_ms = 1500;  // gpupool_counters promises to return within 2 s

Connection::Outcome ask_within(Connection& connection, wire::Control message, std::uint32_t epoch,
                               Reply& reply, int timeout_ms, std::optional<std::uint32_t> argument = {}) {
  const Outgoing out{static_cast<std::uint16_t>(message), epoch};
  const auto encode = [&](wire::Writer& writer) {
    if (argument) writer.put(*argument);
  };
  return connection.ask_within(out, encode, reply, timeout_ms);
}

Connection::Outcome ask_lease(Connection& connection, std::uint32_t epoch, Reply& reply) {
  return ask_within(connection, wire::Control::lease, epoch, reply, lease_timeout_ms);
}

}  // namespace

std::atomic<bool> Runtime::forked_{false};

Runtime& runtime() {
  static Runtime* const only = new Runtime;
  return *only;
}

void Runtime::register_fork_handler() {
  // A child has none of the parent's threads and must not speak on its connection. CUDA's own rule is the
  // same: a context does not survive fork.
  pthread_atfork(nullptr, nullptr, [] {
    forked_.store(true);
    Runtime& r = runtime();
    r.ready_.store(false);
    if (Connection* const connection = r.connection_.load()) connection->abandon_after_fork();
  });
}

CUresult Runtime::initialise() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (initialised()) return CUDA_SUCCESS;
  if (session_file_path() == nullptr) return CUDA_ERROR_NO_DEVICE;
  static std::once_flag once;
  std::call_once(once, register_fork_handler);
  initialised_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

std::optional<SessionFile> Runtime::read_file(std::string& error) {
  const char* const path = session_file_path();
  if (path == nullptr) return std::nullopt;
  const auto text = read_small_file(path);
  if (!text) {
    error = "the session file cannot be read";
    return std::nullopt;
  }
  auto file = parse_session_file(*text, error);
  if (file) {
    if (!file->log.empty()) log_to(file->log);
    software_ = file->software;
  }
  return file;
}

CUresult Runtime::unavailable(const SessionState::Step& step) {
  remember(step.message);
  if (step.log) log_line(step.message);
  return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult Runtime::attach() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard attaching(attaching_);
  std::optional<SessionFile> file;
  SessionState::Step step{SessionState::Step::Kind::ready, {}, false};
  std::uint64_t detaches = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ready_.load()) return CUDA_SUCCESS;
    std::string error;
    file = read_file(error);
    step = session_.needs_worker(file, error);
    detaches = detaches_;
  }
  switch (step.kind) {
    case SessionState::Step::Kind::ready:
      return CUDA_SUCCESS;
    case SessionState::Step::Kind::connect:
      return connect(*file, detaches);
    case SessionState::Step::Kind::lease:
      return lease(*file, detaches);
    case SessionState::Step::Kind::refuse:
      return unavailable(step);
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult Runtime::leased(const SessionFile& file, std::uint64_t detaches) {
  session_.leased(file);
  epoch_.store(file.epoch, std::memory_order_release);
  if (detaches != detaches_) {
    session_.detached();
    return unavailable(
        {SessionState::Step::Kind::refuse, "The GPU was given back while this call attached to it.", false});
  }
  ready_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult Runtime::connect(const SessionFile& file, std::uint64_t detaches) {
  wire::HelloBody hello{};
  hello.magic = wire::hello_magic;
  hello.version = wire::protocol_version;
  hello.token = file.token;
  hello.session = file.session;
  hello.pid = static_cast<std::uint64_t>(getpid());
  hello.arena_base = arena_wish;
  hello.connection = 1;
  wire::HelloReply answer;
  std::string error;
  std::unique_ptr<Connection> made = Connection::open(file.address, hello, answer, error);
  if (made != nullptr && answer.fingerprint != table_fingerprint) {
    error = "the GPU worker was built from another version of gpupool";
    made = nullptr;
  }
  if (made != nullptr) {
    listen_for_completions(*made);
    arriving_copies().listen(*made);
  }
  std::shared_ptr<DeviceProfile> profile;
  if (made != nullptr) {
    try {
      profile = std::make_shared<DeviceProfile>(parse_profile(answer.profile));
    } catch (const std::exception& failure) {
      error = std::string("the GPU worker's device profile is unreadable: ") + failure.what();
      made = nullptr;
    }
  }
  if (made != nullptr &&
      (profile->devices.size() != answer.devices.size() || !memory.open(answer.devices, error))) {
    if (error.empty()) error = "the GPU worker's device profile does not match its devices";
    made = nullptr;
  }
  if (made != nullptr) {
    listen_for_share_news(*made, memory);
    made->on_push(wire::Control::host_function, [](auto body, wire::Receiver&, std::uint64_t payload) {
      return payload == 0 && host_function_called(body);
    });
  }
  Reply taken;
  if (made != nullptr) {
    const auto outcome = ask_lease(*made, file.epoch, taken);
    if (outcome != Connection::Outcome::answered) {
      error = outcome == Connection::Outcome::late ? "the GPU worker at " + file.address + " does not answer"
                                                   : "the GPU worker closed the connection";
      made = nullptr;
    }
  }
  if (made == nullptr) {
    return unavailable({SessionState::Step::Kind::refuse, error, true});
  }
  mark_process();
  survive(*made, hello, file, answer);
  const std::lock_guard lock(mutex_);
  devices_ = profile;
  devices_final_ = true;
  connection_.store(made.release(), std::memory_order_release);
  session_.connected(file);
  epoch_.store(file.epoch, std::memory_order_release);
  if (taken.header.status != wire::Status::ok) {
    session_.refused(file.epoch);
    return unavailable(
        {SessionState::Step::Kind::refuse, "The GPU worker does not know this lease yet or any more.", true});
  }
  return leased(file, detaches);
}

CUresult Runtime::lease(const SessionFile& file, std::uint64_t detaches) {
  if (!connected_to(file)) {
    return unavailable(
        {SessionState::Step::Kind::refuse, "The GPU worker at " + file.address + " does not answer.", true});
  }
  Reply reply;
  const auto outcome = ask_lease(connection(), file.epoch, reply);
  const std::lock_guard lock(mutex_);
  if (outcome == Connection::Outcome::lost || connection().broken()) {
    session_.lost();
    return unavailable(session_.needs_worker(file, {}));
  }
  if (outcome == Connection::Outcome::late) {
    return unavailable({SessionState::Step::Kind::refuse, "The GPU worker does not answer.", true});
  }
  if (reply.header.status != wire::Status::ok) {
    // not_attached: the worker has not been told yet, so the same epoch may be good a moment later.
    if (reply.header.status != wire::Status::not_attached) session_.refused(file.epoch);
    return unavailable({SessionState::Step::Kind::refuse,
                        "The GPU worker does not know this lease yet or any more.", false});
  }
  return leased(file, detaches);
}

CUresult Runtime::enter_without_lease() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!connected()) return attach_for_call();
  return connection().broken() ? lost() : CUDA_SUCCESS;
}

CUresult Runtime::lost() {
  ready_.store(false);
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(mutex_);
  session_.lost();
  std::string error;
  return unavailable(session_.needs_worker(read_file(error), error));
}

void Runtime::refused(std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  if (epoch == epoch_.load()) {
    session_.refused(epoch);
    ready_.store(false);
  }
}

void Runtime::detach() {
  const std::lock_guard lock(mutex_);
  ready_.store(false);
  ++detaches_;
  session_.detached();
}

CUresult Runtime::drain(int timeout_ms) {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!connected()) return CUDA_SUCCESS;
  Reply reply;
  const int limit = std::max(timeout_ms, 0);
  switch (ask_within(connection(), wire::Control::drain, epoch(), reply, limit,
                     static_cast<std::uint32_t>(limit))) {
    case Connection::Outcome::answered:
      break;
    case Connection::Outcome::late:
      remember("The device is still busy after " + std::to_string(limit) + " ms.");
      return CUDA_ERROR_NOT_READY;
    case Connection::Outcome::lost:
      return lost();
  }
  return earlier_or(worker_result(reply.header.result));
}

const char* Runtime::state_name() {
  if (connected() && connection().broken()) return "lost";
  switch (session_.state()) {
    case SessionState::State::none:
      return "none";
    case SessionState::State::attached:
      return "attached";
    case SessionState::State::parked:
      return "parked";
    case SessionState::State::lost:
      return "lost";
  }
  return "none";
}

std::string Runtime::counters_json(bool reset_peak) {
  std::string out = "{" + counters.json() + ",\"worker\":";
  std::string worker = "null";
  if (!forked() && connected() && !connection().broken()) {
    Reply reply;
    wire::StatsReply stats;
    if (ask_within(connection(), wire::Control::stats, epoch(), reply, stats_timeout_ms,
                   reset_peak ? 1u : 0u) == Connection::Outcome::answered) {
      wire::Reader in(reply.fields);
      if (wire::StatsReply::decode(in, stats)) {
        worker = "{\"device_seconds\":" + std::to_string(static_cast<double>(stats.device_ns) * 1e-9) +
                 ",\"kernels\":" + std::to_string(stats.kernels);
        const auto list = [](const std::vector<std::uint64_t>& values) {
          std::string text = "[";
          for (const auto value : values) text += (text.size() > 1 ? "," : "") + std::to_string(value);
          return text + "]";
        };
        worker += ",\"memory_used\":" + list(stats.memory_used) +
                  ",\"memory_peak\":" + list(stats.memory_peak) + "}";
      }
    }
  }
  const std::lock_guard lock(mutex_);
  out += worker + ",\"state\":\"" + state_name() + "\",\"software\":" + (software_ ? "true" : "false") + "}";
  return out;
}

std::shared_ptr<const DeviceProfile> Runtime::devices() {
  {
    const std::lock_guard lock(mutex_);
    if (devices_final_) return devices_;
  }
  std::string error;
  std::optional<SessionFile> file;
  {
    const std::lock_guard lock(mutex_);
    file = read_file(error);
  }
  if (file && file->state == FileState::attached && attach() == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    return devices_;
  }
  const std::lock_guard lock(mutex_);
  if (devices_final_) return devices_;
  if (devices_ == nullptr && file && !file->profile.empty()) {
    if (const auto text = read_small_file(file->profile, 1 << 20)) {
      try {
        devices_ = std::make_shared<DeviceProfile>(parse_profile(*text));
      } catch (const std::exception& failure) {
        log_line(std::string("the device profile is unreadable: ") + failure.what());
      }
    }
  }
  static const auto none = std::make_shared<const DeviceProfile>();
  return devices_ != nullptr ? devices_ : none;
}

}  // namespace gpupool::client
