// The session and its workers: reaching all, taking the lease of all.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>

#include "base/mutex.h"
#include "base/process_mark.h"
#include "client/process/own_addresses.h"
#include "client/session/runtime.h"
#include "client/session/session_hooks.h"
#include "generated/message_ids.h"
#include "wire/hello.h"

namespace gpupool::client {
namespace {

// Each device of the session has its range of addresses, in the order of the ordinals, from one of these
// on: the first where nothing of this process lies. AddressSanitizer has its heap at the first; allocators
// that choose at random may be anywhere. Sessions that follow each other in one process have theirs behind
// each other, so that no address of an earlier one is an address of theirs; after so many it begins again.
using wire::arena_span;
#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t arena_wishes[] = {arena_span};
constexpr unsigned arena_places = 7;
#else
constexpr std::uint64_t arena_wishes[] = {0x0000'6000'0000'0000, 0x0000'3000'0000'0000,
                                          0x0000'1000'0000'0000};
constexpr unsigned arena_places = 30;
#endif

constexpr int lease_timeout_ms = 10'000;

/// How many devices the workers before this one have.
unsigned devices_before(const SessionFile& file, unsigned number) {
  unsigned count = 0;
  for (unsigned n = 0; n < number && n < file.devices.size(); ++n) count += file.devices[n];
  return count;
}

Connection::Outcome ask_lease(const WorkerLink& link, std::uint32_t epoch, Reply& reply) {
  return ask_within(link, wire::Control::lease, epoch, reply, lease_timeout_ms);
}

}  // namespace

std::uint64_t Runtime::arena_of(unsigned index, unsigned devices) {
  // Chosen once: what an attempt to connect has reserved is no longer free, but this process's own.
  const auto [place, is_new] = arenas_.try_emplace(index, 0);
  if (is_new) {
    std::array<std::uint64_t, std::size(arena_wishes)> begins{};
    std::transform(std::begin(arena_wishes), std::end(arena_wishes), begins.begin(), [&](std::uint64_t wish) {
      return wish + std::uint64_t{index % arena_places} * arena_span;
    });
    place->second = first_free(begins, std::max(1U, devices) * arena_span);
  }
  return place->second;
}

bool Runtime::reach(const SessionFile& whole, unsigned number, Reached& out, std::string& error) {
  const SessionFile file = whole.of_worker(number);
  WorkerLink& link = links_[number];
  out.hello.magic = wire::hello_magic;
  out.hello.version = wire::protocol_version;
  out.hello.token = file.token;
  out.hello.session = file.session;
  out.hello.pid = static_cast<std::uint64_t>(getpid());
  out.hello.arena_base = arena_of(devices_begun_ + devices_before(whole, number),
                                  number < whole.devices.size() ? whole.devices[number] : 1);
  out.hello.connection = 1;
  out.connection = Connection::open(file.address, out.hello, out.answer, error);
  if (out.connection == nullptr) return false;
  if (out.answer.fingerprint != table_fingerprint) {
    error = "the GPU worker was built from another version of gpupool";
    return false;
  }
  listen_to_worker(*out.connection, link);
  try {
    out.profile = std::make_shared<DeviceProfile>(parse_profile(out.answer.profile));
  } catch (const std::exception& failure) {
    error = std::string("the GPU worker's device profile is unreadable: ") + failure.what();
    return false;
  }
  if (out.profile->devices.size() != out.answer.devices.size()) {
    error = "the GPU worker's device profile does not match its devices";
    return false;
  }
  if (!file.devices.empty() && file.devices[0] != out.answer.devices.size()) {
    error = "the GPU worker at " + file.address + " has another number of devices than the session file says";
    return false;
  }
  return true;
}

bool Runtime::open_memory(const std::vector<Reached>& all, std::string& error) {
  std::vector<wire::ArenaDescription> arenas;
  for (const Reached& one : all) {
    arenas.insert(arenas.end(), one.answer.devices.begin(), one.answer.devices.end());
  }
  if (open_device_memory(arenas, error)) return true;
  arenas_.clear();  // taken since it was looked at: the next attempt looks again
  return false;
}

CUresult Runtime::connect(const SessionFile& file, std::uint64_t detaches) {
  const auto refuse = [this](const std::string& error) {
    return unavailable({SessionState::Step::Kind::refuse, error, true});
  };
  const auto count = static_cast<unsigned>(file.workers());
  std::string error;
  std::vector<Reached> all(count);
  for (unsigned n = 0; n < count; ++n) {
    if (!reach(file, n, all[n], error)) return refuse(error);
  }
  if (session_generation() != 0) forget_session();
  if (!open_memory(all, error)) return refuse(error);
  int devices = 0;
  for (unsigned n = 0; n < count; ++n) {
    links_[n].first_device = devices;
    links_[n].devices = static_cast<int>(all[n].answer.devices.size());
    devices += links_[n].devices;
  }
  bool taken = true;
  std::vector<wire::Status> answers;
  for (unsigned n = 0; n < count; ++n) {
    Reply reply;
    const SessionFile one = file.of_worker(n);
    const Outgoing out{static_cast<std::uint16_t>(wire::Control::lease), one.epoch};
    const auto outcome = all[n].connection->ask_within(out, [](wire::Writer&) {}, reply, lease_timeout_ms);
    if (outcome != Connection::Outcome::answered) {
      return refuse(outcome == Connection::Outcome::late
                        ? "the GPU worker at " + one.address + " does not answer"
                        : "the GPU worker closed the connection");
    }
    answers.push_back(reply.header.status);
    taken = taken && reply.header.status == wire::Status::ok;
  }
  process_mark::mark_process();
  notice_interrupts();
  workers_.store(count);
  for (unsigned n = 0; n < count; ++n) {
    survive(links_[n], *all[n].connection, all[n].hello, file.of_worker(n), all[n].answer);
  }
  const MutexLock lock(mutex_);
  for (unsigned n = count; n-- > 0;) {  // who sees the first sees all
    links_[n].profile = all[n].profile;
    links_[n].connection.store(all[n].connection.release(), std::memory_order_release);
  }
  gather_devices();
  devices_final_ = true;
  devices_begun_ += static_cast<unsigned>(devices);
  session_.connected(file);
  session_generation_.fetch_add(1, std::memory_order_acq_rel);
  over_.store(false);
  take_epochs(file);
  if (!taken) {
    for (unsigned n = 0; n < count; ++n) {
      if (answers[n] != wire::Status::ok) session_.refused(file.of_worker(n).epoch, n);
    }
    return unavailable(
        {SessionState::Step::Kind::refuse, "The GPU worker does not know this lease yet or any more.", true});
  }
  return leased(file, detaches);
}

void Runtime::gather_devices() {
  if (!several()) {
    devices_ = links_[0].profile;
    return;
  }
  auto all = std::make_shared<DeviceProfile>();
  for (unsigned n = 0; n < workers(); ++n) {
    const DeviceProfile& part = *links_[n].profile;
    // What the oldest driver can do all can.
    all->driver_version = n == 0 ? part.driver_version : std::min(all->driver_version, part.driver_version);
    for (DeviceDescription device : part.devices) {
      device.ordinal = static_cast<int>(all->devices.size());
      all->devices.push_back(std::move(device));
    }
  }
  devices_ = std::move(all);
}

CUresult Runtime::lease(const SessionFile& file, std::uint64_t detaches) {
  const auto refuse = [this](const std::string& error, bool log) {
    return unavailable({SessionState::Step::Kind::refuse, error, log});
  };
  for (unsigned n = 0; n < workers(); ++n) {
    const SessionFile one = file.of_worker(n);
    if (!connected_to(links_[n], one)) {
      return refuse("The GPU worker at " + one.address + " does not answer.", true);
    }
    Reply reply;
    const auto outcome = ask_lease(links_[n], one.epoch, reply);
    const MutexLock lock(mutex_);
    if (outcome == Connection::Outcome::lost || any_broken()) {
      session_.lost();
      return unavailable(session_.needs_worker(file, {}));
    }
    if (outcome == Connection::Outcome::late) return refuse("The GPU worker does not answer.", true);
    if (reply.header.status != wire::Status::ok) {
      // not_attached: the worker has not been told yet, so the same epoch may be good a moment later.
      if (reply.header.status != wire::Status::not_attached) session_.refused(one.epoch, n);
      return refuse("The GPU worker does not know this lease yet or any more.", false);
    }
  }
  const MutexLock lock(mutex_);
  return leased(file, detaches);
}

}  // namespace gpupool::client
