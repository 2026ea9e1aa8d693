// The session as something that can be carried away: what stands in the way, and standing still while it is
// written down.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>

#include "worker/image/image_folder.h"
#include "worker/moving/session_resume.h"
#include "worker/moving/session_transfer.h"
#include "worker/moving/session_writer.h"
#include "worker/session/executor.h"

namespace gpupool::worker {
namespace {

constexpr auto patience = std::chrono::seconds(5);
constexpr auto look_again = std::chrono::milliseconds(2);

}  // namespace

MoveObstacle Executor::obstacle_to_moving(bool thorough) {
  if (!graphs.captures.empty()) return MoveObstacle::capture;
  if (graphs.has_allocations) return MoveObstacle::graphs;  // their memory may outlive them
  if (exports.gives_out_any()) return MoveObstacle::ipc;
  return journal.obstacle(handles, thorough);
}

void Executor::publish_obstacle(bool thorough) {
  // Not longer than a short call takes: who asks has other things to do.
  const std::unique_lock lock(executing_, std::chrono::milliseconds(1));
  if (lock.owns_lock()) move_obstacle_.store(obstacle_to_moving(thorough));
}

/// Precondition: `lock` holds executing_. What has been written down must not change behind the image's back,
/// and no frame may be acknowledged that the image does not know of. The next lease shows that this worker
/// keeps the session.
bool Executor::may_go_on(std::unique_lock<std::timed_mutex>& lock) {
  while (written_epoch_ != 0) {
    if (state.gate.view(boottime_ns()).epoch > written_epoch_) {
      written_epoch_ = 0;
      break;
    }
    if (served_->hung_up()) return false;  // set by the thread that this is
    lock.unlock();
    std::this_thread::sleep_for(10 * look_again);
    lock.lock();
  }
  // Calls that had been kept may have been executed on another thread, and have selected a context.
  if (std::exchange(executed_elsewhere_, false)) static_cast<void>(select(current_));
  return true;
}

/// Takes executing_ at a moment when nothing is under way. Not owned: that did not come in time.
std::unique_lock<std::timed_mutex> Executor::stand_still() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(executing_, std::defer_lock);
  while (std::chrono::steady_clock::now() < deadline) {
    if (!lock.try_lock_until(deadline)) return lock;
    api.cuCtxSetCurrent_(current_);
    // Asked, not waited for: a stream may wait for a function of the client's, whose end is a frame.
    // A stream that was destroyed is not among those that a context knows of, but its work is counted.
    if (lanes_.active() == 0 && completions.idle() && work.is_complete() &&
        std::all_of(device_of_.begin(), device_of_.end(), [&](const auto& one) { return idle(one.first); })) {
      return lock;
    }
    lock.unlock();
    std::this_thread::sleep_for(look_again);
  }
  return lock;
}

MoveResult Executor::write_session(const std::function<MoveResult(SessionWriter&)>& write) {
  MoveResult result;
  if (const MoveObstacle known = move_obstacle_.load(); known != MoveObstacle::none) {
    result.refusal = name_of(known);
    return result;
  }
  // Bytes are read from the devices.
  if (state.gate.view(boottime_ns()).state != LeaseState::attached) result = resume({});
  if (!result.refusal.empty()) return result;
  const Residence::Visit visit(&parking.residence);
  const std::unique_lock lock = visit ? stand_still() : std::unique_lock<std::timed_mutex>();
  if (!lock.owns_lock()) {
    result.refusal = "busy";
    return result;
  }
  const LeaseGate::View lease = state.gate.view(boottime_ns());
  if (lease.state == LeaseState::attached) {
    result.refusal = "attached";
    return result;
  }
  try {
    executed_elsewhere_ = true;
    execute_kept();
    if (const MoveObstacle obstacle = obstacle_to_moving(); obstacle != MoveObstacle::none) {
      result.refusal = name_of(obstacle);
      return result;
    }
    need(synchronize_all(), "cuCtxSynchronize");
    SessionWriter writer(*this);
    result = write(writer);
    if (result.refusal.empty()) written_epoch_ = lease.epoch;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool-worker: the session was not written: %s\n", error.what());
    result.refusal = "failed";
  }
  return result;
}

MoveResult Executor::export_image(const std::string& folder) {
  return write_session([&](SessionWriter& writer) {
    ImageFolderWriter out(folder);
    MoveResult result;
    writer.read_all([&](std::span<const std::byte> chunk) {
      out.append(chunk);
      result.bytes += chunk.size();
    });
    result.chunks = writer.image().chunks.size();
    out.finish(writer.image().encode());
    return result;
  });
}

void Executor::hand_over(wire::Stream& stream) {
  const auto wanted_here = [this] { return state.gate.view(boottime_ns()).state == LeaseState::attached; };
  SessionSender sender(stream);
  if (wanted_here()) return sender.conclude("attached");
  // A worker that has stopped in the middle must not keep the session from going on here.
  std::jthread watch([&](const std::stop_token& over) {
    while (!over.stop_requested()) {
      if (wanted_here()) stream.shut_down();
      std::this_thread::sleep_for(10 * look_again);
    }
  });
  const MoveResult result =
      write_session([&](SessionWriter& writer) { return sender.send(writer, wanted_here); });
  watch.request_stop();
  watch.join();
  sender.conclude(result.refusal);
  stream.shut_down();
}

void Executor::resume_from(ChunkSource& source, const SessionImage& image) {
  const std::lock_guard lock(executing_);
  SessionResume(*this, image, source).run();
  move_obstacle_.store(obstacle_to_moving());
}

}  // namespace gpupool::worker
