#include "worker/process/session_host.h"

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "worker/image/image_folder.h"
#include "worker/moving/session_transfer.h"

namespace gpupool::worker {

SessionHost::SessionHost(const std::string& driver_path, WorkerState& state)
    : equipment_(driver_path, state),
      host_calls_([this](const wire::HostFunction& call, std::function<void()> untold) {
        conversation_.completions.announce(call, std::move(untold));
      }),
      work_(equipment_.driver, state, equipment_.parking.residence,
            [this] { return host_calls_.under_way(); }),
      conversation_(equipment_, work_, host_calls_),
      parking_(equipment_, work_, conversation_),
      move_(conversation_, parking_) {}

std::unique_ptr<SessionHost> SessionHost::open(const std::string& driver_path, WorkerState& state) {
  auto host = std::make_unique<SessionHost>(driver_path, state);
  if (!state.resume_folder.empty()) {
    ImageFolder folder(state.resume_folder);
    host->resume_from(folder, folder.image());
  } else if (!state.resume_from.empty()) {
    SessionFetcher fetcher(state.resume_from, state.move_key.value(), state.session_id);
    host->resume_from(fetcher, fetcher.image());
    fetcher.take_over();
  }
  return host;
}

bool SessionHost::stop_work() {
  if (!work_.stop()) return false;
  conversation_.work_stopped();
  return true;
}

void SessionHost::tick() {
  work_.charge();
  conversation_.trim_output();
  conversation_.publish_obstacle(true);
  work_.look();
}

}  // namespace gpupool::worker
