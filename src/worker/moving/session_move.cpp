#include "worker/moving/session_move.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <stop_token>
#include <thread>

#include "worker/image/image_folder.h"
#include "worker/moving/session_resume.h"
#include "worker/moving/session_transfer.h"

namespace gpupool::worker {
namespace {

constexpr auto look_again = std::chrono::milliseconds(20);

}  // namespace

MoveResult SessionMove::write(const std::function<MoveResult(SessionWriter&)>& use) {
  if (const MoveObstacle known = conversation_.move_obstacle(); known != MoveObstacle::none) {
    return {name_of(known)};
  }
  bool was_away = false;
  if (state_.gate.view(boottime_ns()).state != LeaseState::attached) {
    // Bytes are read from the devices.
    was_away = conversation_.equipment().parking.mover.place().in_host();
    if (MoveResult here = parking_.resume({}); !here.refusal.empty()) return here;
  }
  MoveResult result = write_here(use);
  result.brought_back = was_away && !result.refusal.empty();
  return result;
}

MoveResult SessionMove::write_here(const std::function<MoveResult(SessionWriter&)>& use) {
  MoveResult result;
  const Residence::Visit visit(&conversation_.equipment().parking.residence);
  const Conversation::Hold lock = visit ? conversation_.stand_still() : Conversation::Hold();
  if (!lock.owns_lock()) {
    result.refusal = "busy";
    return result;
  }
  const LeaseGate::View lease = state_.gate.view(boottime_ns());
  if (lease.state == LeaseState::attached) {
    result.refusal = "attached";
    return result;
  }
  try {
    conversation_.catch_up_elsewhere();
    if (const MoveObstacle obstacle = conversation_.look_for_obstacle(); obstacle != MoveObstacle::none) {
      result.refusal = name_of(obstacle);
      return result;
    }
    need(conversation_.session().synchronize_all(), "cuCtxSynchronize");
    SessionWriter writer(conversation_);
    result = use(writer);
    if (result.refusal.empty()) conversation_.was_written(lease.epoch);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool-worker: the session was not written: %s\n", error.what());
    result.refusal = "failed";
  }
  return result;
}

MoveResult SessionMove::export_image(const std::string& folder) {
  return write([&](SessionWriter& writer) {
    ImageFolderWriter out(folder);
    MoveResult result;
    writer.read_all(
        [&](std::span<const std::byte> chunk) {
          out.append(chunk);
          result.bytes += chunk.size();
        },
        [] { return false; });  // a lease waits for it: see SlowCommands
    result.chunks = writer.image().chunks.size();
    out.finish(writer.image().encode());
    return result;
  });
}

MoveResult SessionMove::hand_over(wire::Stream& stream) {
  const auto wanted_here = [this] { return state_.gate.view(boottime_ns()).state == LeaseState::attached; };
  SessionSender sender(stream);
  if (wanted_here()) {
    sender.conclude("attached");
    return {"attached"};
  }
  // A worker that has stopped in the middle must not keep the session from going on here.
  std::jthread watch([&](const std::stop_token& over) {
    while (!over.stop_requested()) {
      if (wanted_here()) stream.shut_down();
      std::this_thread::sleep_for(look_again);
    }
  });
  // So has one that is gone.
  const auto given_up = [&] { return wanted_here() || stream.hung_up(); };
  MoveResult result = write([&](SessionWriter& writer) { return sender.send(writer, given_up); });
  watch.request_stop();
  watch.join();
  sender.conclude(result.refusal);
  stream.shut_down();
  return result;
}

void SessionMove::resume_from(ChunkSource& source, const SessionImage& image) {
  const Conversation::Hold lock = conversation_.hold();
  SessionResume(conversation_, image, source).run();
  static_cast<void>(conversation_.look_for_obstacle());
}

}  // namespace gpupool::worker
