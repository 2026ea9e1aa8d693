// A session begins: a new one, or one that another worker wrote down.
#include <memory>
#include <string>

#include "worker/image/image_folder.h"
#include "worker/lease/session_contract.h"
#include "worker/moving/session_transfer.h"
#include "worker/session/executor.h"

namespace gpupool::worker {

std::unique_ptr<SessionExecutor> open_session(const std::string& driver_path, WorkerState& state) {
  auto session = std::make_unique<Executor>(driver_path, state);
  if (!state.resume_folder.empty()) {
    ImageFolder folder(state.resume_folder);
    session->resume_from(folder, folder.image());
  } else if (!state.resume_from.empty()) {
    SessionFetcher fetcher(state.resume_from, state.token, state.session_id);
    session->resume_from(fetcher, fetcher.image());
    fetcher.take_over();
  }
  return session;
}

}  // namespace gpupool::worker
