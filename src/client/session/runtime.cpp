#include "client/session/runtime.h"

#include <pthread.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/mutex.h"
#include "base/once.h"
#include "client/lease/refused_memory.h"
#include "client/link/worker_result.h"
#include "client/process/log.h"
#include "client/process/session_belongings.h"
#include "client/session/attach_again.h"
#include "client/session/earlier_error.h"
#include "client/session/session_file_watch.h"
#include "client/session/session_hooks.h"

namespace gpupool::client {
namespace {

const char* session_file_path() {
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  return path != nullptr && *path != '\0' ? path : nullptr;
}

constexpr int stats_timeout_ms = 1500;  // gpupool_counters promises to return within 2 s

}  // namespace

std::atomic<bool> Runtime::forked_{false};

Connection::Outcome ask_within(const WorkerLink& link, wire::Control message, std::uint32_t epoch,
                               Reply& reply, int timeout_ms, const wire::Buffer& body) {
  const Outgoing out{static_cast<std::uint16_t>(message), epoch};
  const auto encode = [&](wire::Writer& writer) { writer.append(body.bytes()); };
  return link.connection.load()->ask_within(out, encode, reply, timeout_ms);
}

Runtime::Runtime() {
  for (unsigned n = 0; n < links_.size(); ++n) links_[n].index = n;
}

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
    for (WorkerLink& link : r.links_) {
      if (Connection* const connection = link.connection.load()) connection->abandon_after_fork();
    }
  });
}

CUresult Runtime::initialise() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (initialised()) return CUDA_SUCCESS;
  if (session_file_path() == nullptr) return CUDA_ERROR_NO_DEVICE;
  static Once once;
  once.run(register_fork_handler);
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
  if (step.log) tell_refusal(step.message, step.told);
  return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult Runtime::attach(bool may_begin) {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (may_begin) {
    const MutexLock attaching(attaching_);
    return attach_now(true);
  }
  // The thread that begins the next session waits for mutexes that this call may hold, and it may find out
  // that it has to when this thread waits here already.
  while (!over_.load()) {
    if (attaching_.try_lock()) {
      const MutexLock attaching(attaching_, std::adopt_lock);
      return attach_now(false);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return lost();
}

CUresult Runtime::attach_now(bool may_begin) {
  std::optional<SessionFile> file;
  SessionState::Step step{SessionState::Step::Kind::ready, {}, false};
  std::uint64_t detaches = 0;
  {
    const MutexLock lock(mutex_);
    if (ready_.load() && !may_begin) return CUDA_SUCCESS;
    std::string error;
    file = read_file(error);
    // Workers that are gone may still be looked for: that the file names others says that they are.
    const auto replaced = [&] {
      if (!file || file->state != FileState::attached || !connected()) return false;
      bool same = file->workers() == workers();
      for (unsigned n = 0; same && n < workers(); ++n) {
        same = file->of_worker(n).session == links_[n].door.session;
      }
      return !same;
    };
    if (ready_.load() && !replaced()) return CUDA_SUCCESS;
    if (ready_.exchange(false)) session_.detached();
    if (any_broken()) session_.lost();
    step = session_.needs_worker(file, error);
    detaches = detaches_;
    if (session_.state() == SessionState::State::lost) over_.store(true);
    const bool begins = step.kind == SessionState::Step::Kind::connect && session_generation() != 0;
    if (begins) over_.store(true);
    if (begins && !may_begin) {
      step = {
          SessionState::Step::Kind::refuse,
          "The GPU session that this call belongs to is over. Another one is attached; it begins with the "
          "next call.",
          false};
    }
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
  take_epochs(file);
  if (detaches != detaches_) {
    session_.detached();
    return unavailable(
        {SessionState::Step::Kind::refuse, "The GPU was given back while this call attached to it.", false});
  }
  ready_.store(true, std::memory_order_release);
  // Posts must cease before the lease does: what a worker without one is sent it drops.
  if (file.resumes) watch_session_file();
  return CUDA_SUCCESS;
}

void Runtime::take_epochs(const SessionFile& file) {
  for (unsigned n = 0; n < workers(); ++n) {
    links_[n].epoch.store(file.of_worker(n).epoch, std::memory_order_release);
  }
}

bool Runtime::any_broken() {
  for (unsigned n = 0; n < workers(); ++n) {
    const Connection* const connection = links_[n].connection.load(std::memory_order_acquire);
    if (connection != nullptr && connection->broken()) return true;
  }
  return false;
}

CUresult Runtime::enter_without_lease() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!connected()) return attach_for_call();
  return any_broken() ? lost() : CUDA_SUCCESS;
}

CUresult Runtime::lost() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const MutexLock lock(mutex_);
  // Who finds nothing broken was in a call of an earlier session: this one goes on.
  if (any_broken()) {
    ready_.store(false);
    session_.lost();
    over_.store(true);
  } else if (session_.state() != SessionState::State::lost) {
    return unavailable({SessionState::Step::Kind::refuse, "The GPU session of this call has ended.", false});
  }
  std::string error;
  auto step = session_.needs_worker(read_file(error), error);
  if (step.kind != SessionState::Step::Kind::refuse) step.message = "The GPU session of this call has ended.";
  return unavailable(step);
}

CUresult Runtime::lost(WorkerLink& link) {
  link.connection.load(std::memory_order_acquire)->give_up();
  return lost();
}

void Runtime::begin_next() {
  if (!never_waits() && !in_host_function()) static_cast<void>(attach(true));
}

void Runtime::forget_session() {
  for (const WorkerLink& link : links_) {
    if (Connection* const connection = link.connection.load(std::memory_order_acquire)) connection->give_up();
  }
  forget_belongings();
}

void Runtime::refused(const WorkerLink& worker, std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  if (epoch == worker.epoch.load()) {
    session_.refused(epoch, worker.index);
    ready_.store(false);
  }
}

void Runtime::detach() {
  const MutexLock lock(mutex_);
  ready_.store(false);
  ++detaches_;
  session_.detached();
}

std::optional<CUresult> Runtime::drain(WorkerLink& link, int limit, Drained drained) {
  Reply reply;
  switch (ask_within(link, wire::Control::drain, link.epoch.load(), reply, limit,
                     wire::packed(wire::Drain{static_cast<std::uint32_t>(limit)}))) {
    case Connection::Outcome::answered:
      if (reply.header.result == CUDA_SUCCESS) drained(link, reply.sequence);
      return earlier_or(worker_result(reply.header.result), link);
    case Connection::Outcome::late:
      remember("The device is still busy after " + std::to_string(limit) + " ms.");
      return CUDA_ERROR_NOT_READY;
    case Connection::Outcome::lost:
      break;
  }
  return std::nullopt;
}

CUresult Runtime::drain(int timeout_ms, Drained drained) {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!connected()) return CUDA_SUCCESS;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  CUresult first = CUDA_SUCCESS;
  for (unsigned n = 0; n < workers(); ++n) {
    // The devices work at the same time: the time is one for all.
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    const int limit = n == 0 ? std::max(timeout_ms, 0) : static_cast<int>(std::max<long>(left.count(), 0));
    const auto result = drain(links_[n], limit, drained);
    if (!result) return lost();
    if (first == CUDA_SUCCESS) first = *result;
  }
  return first;
}

const char* Runtime::state_name() {
  if (any_broken()) return "lost";
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
  std::string out = "{" + counters.json() +
                    ",\"session_generation\":" + std::to_string(session_generation()) + ",\"worker\":";
  std::string worker = "null";
  wire::StatsReply all;
  unsigned told = 0;
  if (!forked() && connected() && !any_broken()) {
    for (; told < workers(); ++told) {
      Reply reply;
      wire::StatsReply stats;
      if (ask_within(links_[told], wire::Control::stats, links_[told].epoch.load(), reply, stats_timeout_ms,
                     wire::packed(wire::Stats{reset_peak ? 1u : 0u})) != Connection::Outcome::answered) {
        break;
      }
      if (!wire::unpack(reply.fields, stats)) break;
      all.device_ns += stats.device_ns;
      all.kernels += stats.kernels;
      if (all.failure == 0) all.failure = stats.failure;
      all.memory.insert(all.memory.end(), stats.memory.begin(), stats.memory.end());
    }
  }
  if (told != 0 && told == workers()) worker = counted_json(all);
  if (!forked()) hear_refusals();
  if (const auto refused = refused_memory().last()) worker += ",\"out_of_memory\":" + refused->json();
  if (reset_peak) refused_memory().clear();
  const MutexLock lock(mutex_);
  out += worker + ",\"state\":\"" + state_name() + "\",\"software\":" + (software_ ? "true" : "false") +
         ",\"failure\":" + std::to_string(all.failure) + "}";
  return out;
}

std::shared_ptr<const DeviceProfile> Runtime::devices() {
  {
    const MutexLock lock(mutex_);
    if (devices_final_) return devices_;
  }
  std::string error;
  std::optional<SessionFile> file;
  bool worth_trying = false;
  {
    const MutexLock lock(mutex_);
    file = read_file(error);
    // One question to a device is a hundred of these: a worker that cannot be had is not dialled for each.
    worth_trying = file && file->state == FileState::attached &&
                   (file->generation != vain_generation_ ||
                    std::chrono::steady_clock::now() - vain_since_ > std::chrono::seconds(1));
  }
  const bool attached = worth_trying && attach() == CUDA_SUCCESS;
  const MutexLock lock(mutex_);
  if (attached) return devices_;
  if (worth_trying) {
    vain_generation_ = file->generation;
    vain_since_ = std::chrono::steady_clock::now();
  }
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
