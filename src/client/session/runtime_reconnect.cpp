// The process's session and its connection when that breaks, or when the worker is somewhere else.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/mutex.h"
#include "client/session/attach_again.h"
#include "client/session/runtime.h"
#include "client/session/session_hooks.h"
#include "generated/message_ids.h"

namespace gpupool::client {
namespace {

/// GPUPOOL_RECONNECT_SECONDS in the environment, for tests: how long a broken connection is tried again.
ReconnectPolicy::Duration reconnect_limit() {
  const char* const text = std::getenv("GPUPOOL_RECONNECT_SECONDS");
  unsigned seconds = 0;
  if (text == nullptr) return ReconnectPolicy::default_limit;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  if (error != std::errc{} || *end != '\0' || seconds > 86'400) return ReconnectPolicy::default_limit;
  return std::chrono::seconds(seconds);
}

/// How long who attaches waits for the connection; it is made later all the same.
constexpr auto attach_limit = std::chrono::seconds(10);

bool same_places(const std::vector<wire::ArenaDescription>& left,
                 const std::vector<wire::ArenaDescription>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return a.base == b.base && a.size == b.size && a.granularity == b.granularity;
  });
}

}  // namespace

void Runtime::survive(WorkerLink& link, Connection& connection, const wire::HelloBody& hello,
                      const SessionFile& file, const wire::HelloReply& worker) {
  {
    const MutexLock lock(mutex_);
    link.door = {file.address, file.token, file.session};
  }
  const auto policy = std::make_shared<ReconnectPolicy>(file.session, file.address, reconnect_limit(),
                                                        ReconnectPolicy::Clock::now());
  Connection::Survival how;
  how.hello = hello;
  how.next = [this, policy, number = link.index](ReconnectPolicy::Result last, bool wanted) {
    const auto now = ReconnectPolicy::Clock::now();
    std::optional<SessionFile> read;
    {
      const MutexLock lock(mutex_);
      std::string error;
      read = read_file(error);
      if (read && several()) read = read->of_worker(number);
    }
    if (last == ReconnectPolicy::Result::broke) policy->broken(now);
    if (wanted) policy->wanted(now);
    return policy->next(read, last, now);
  };
  how.accept = [this, policy, &link, places = worker.devices](const wire::HelloReply& answer,
                                                              std::string& error) {
    if (answer.fingerprint != table_fingerprint) {
      error = "it was built from another version of gpupool";
      return false;
    }
    if (!same_places(answer.devices, places)) {
      error = "its memory lies at other addresses";
      return false;
    }
    std::shared_ptr<DeviceProfile> profile;
    try {
      profile = std::make_shared<DeviceProfile>(parse_profile(answer.profile));
    } catch (const std::exception& failure) {
      error = std::string("its device profile is unreadable: ") + failure.what();
      return false;
    }
    if (profile->devices.size() != places.size()) {
      error = "its device profile does not match its devices";
      return false;
    }
    policy->connected(ReconnectPolicy::Clock::now());
    const MutexLock lock(mutex_);
    link.profile = profile;  // the session may be on other devices now
    gather_devices();
    link.door.address = policy->address();
    return true;
  };
  // The first may come before the link knows its connection.
  how.errand = [&link, &connection] {
    never_wait_for_lease();
    grant_wishes(link, connection);
  };
  // With one worker the session is lost as a whole: calls to the others must not go on.
  if (several()) how.lost = [this] { ready_.store(false); };
  connection.survive(std::move(how));
}

bool Runtime::connected_to(WorkerLink& link, const SessionFile& file) {
  bool elsewhere = false;
  {
    const MutexLock lock(mutex_);
    elsewhere = file.address != link.door.address;
  }
  Connection& connection = *link.connection.load();
  connection.look_again(elsewhere);
  return connection.await_connected(attach_limit) || connection.broken();
}

}  // namespace gpupool::client
