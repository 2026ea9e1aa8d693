// How the executor gives its devices up and comes back.
#include "worker/residence/parking.h"

#include <algorithm>
#include <map>

#include "base/text_fields.h"
#include "generated/message_ids.h"
#include "worker/image/device_pairs.h"
#include "worker/session/dispatch.h"
#include "worker/session/executor.h"

namespace gpupool::worker {
namespace {

constexpr int driver_with_pairs = 13000;  // 580 is CUDA 13.0

CUuuid uuid_from(const std::string& text) {
  CUuuid uuid{};
  static_cast<void>(
      parse_hex(text, {reinterpret_cast<std::uint8_t*>(uuid.bytes), sizeof uuid.bytes}));  // checked before
  return uuid;
}

}  // namespace

std::string Executor::park_obstacle() const {
  if (work.stopped()) return "working";
  // The driver's checkpoint is not documented to carry clients of MPS.
  if (state.mps != Mps::none) return "mps";
  bool shared = exports.size() > 0;
  for (const MemoryAccount& account : state.memory) shared = shared || account.imports() > 0;
  return parking.obstacles.first(parking.mover.able(), shared);
}

MemoryReport Executor::memory_report() const {
  const MoveObstacle moving = move_obstacle_.load();
  return {parking.mover.place().in_host(), park_obstacle(),
          moving == MoveObstacle::none ? "" : name_of(moving)};
}

MoveResult Executor::park(int drain_ms) {
  if (parking.mover.place().in_host()) return {"", parking.mover.place().bytes()};
  if (std::string obstacle = park_obstacle(); !obstacle.empty()) return {std::move(obstacle)};
  if (!drain(drain_ms)) return {"busy"};
  const std::lock_guard moving(parking.moving);
  const auto refusal = [this]() -> std::string {
    if (std::string obstacle = park_obstacle(); !obstacle.empty()) return obstacle;
    return lanes_.active() > 0 || !work.is_complete() ? "busy" : "";
  };
  const auto bytes = [this] {
    std::uint64_t sum = 0;
    for (const MemoryAccount& account : state.memory) sum += account.allocated();
    return sum;
  };
  return parking.mover.park(std::chrono::milliseconds(std::max(drain_ms, 1)), refusal, bytes);
}

MoveResult Executor::resume(const std::vector<DeviceChange>& devices) {
  const std::lock_guard moving(parking.moving);
  std::map<std::size_t, std::string> wishes;
  for (const DeviceChange& change : devices) {
    CUdevice device = 0;
    if (!this->device(static_cast<std::int32_t>(change.ordinal), device)) return {"bad-share"};
    wishes[static_cast<std::size_t>(device)] = change.uuid;
  }
  const auto pairs = device_pairs(parking.cards, wishes);
  if (!parking.mover.place().in_host()) return {pairs && pairs->empty() ? "" : "resident"};
  if (!pairs) return {"resume-failed why=unknown-device"};
  if (!pairs->empty() && profile_.driver_version < driver_with_pairs) {
    return {"resume-failed why=old-driver"};
  }
  std::vector<CUcheckpointGpuPair> remapped;
  for (const auto& [from, to] : *pairs) remapped.push_back({uuid_from(from), uuid_from(to)});
  return parking.mover.resume(remapped, [&] { change_cards(*pairs); });
}

/// The driver's ordinals stay; what they stand for has changed.
void Executor::change_cards(const std::vector<std::pair<std::string, std::string>>& pairs) {
  const std::lock_guard lock(parking.identity);
  for (std::size_t ordinal = 0; ordinal < pairs.size(); ++ordinal) {
    parking.cards[ordinal] = pairs[ordinal].second;
  }
  for (std::size_t n = 0; n < profile_.devices.size(); ++n) {
    DeviceDescription& shown = profile_.devices[n];
    const std::string& card = parking.cards[static_cast<std::size_t>(devices_[n])];
    const auto found = std::find_if(parking.machine.devices.begin(), parking.machine.devices.end(),
                                    [&](const DeviceDescription& device) { return device.uuid == card; });
    if (found == parking.machine.devices.end()) continue;
    const auto ordinal = shown.ordinal;
    const auto priorities = shown.stream_priorities;
    shown = *found;
    shown.ordinal = ordinal;
    shown.stream_priorities = priorities;
  }
}

bool Executor::client_left() {
  const std::lock_guard lock(serving_);
  return served_ != nullptr && served_->hung_up();
}

/// Memory is back: what the client freed meanwhile is freed now, before anything else.
void Executor::execute_kept() {
  if (parking.kept.empty()) return;
  const std::uint32_t lane = lane_;
  wire::Buffer unanswered;
  for (const KeptFrames::Frame& frame : parking.kept.take()) {
    const auto id = static_cast<MessageId>(frame.header.message);
    wire::Reader in(frame.body);
    if (id == MessageId::MapMemory) {  // had been refused, and waits for the next lease
      messages::MapMemory wanted;
      if (messages::MapMemory::decode(in, wanted) && refused_maps_.size() < max_refused_maps) {
        refused_maps_.push_back({wanted.device, wanted.address, wanted.size});
      } else {
        defer(CUDA_ERROR_OUT_OF_MEMORY, frame.header.message);
      }
      continue;
    }
    lane_ = frame.header.lane;
    wire::Writer out(unanswered);
    const CUresult result = dispatch_table[frame.header.message - wire::first_call].run(*this, in, out);
    if (result == CUDA_SUCCESS) {
      journal.note(frame.header.message, lane_, name_of_current(), frame.body, handles);
    } else {
      defer(result == malformed ? CUDA_ERROR_INVALID_VALUE : result, frame.header.message);
    }
  }
  lane_ = lane;
}

}  // namespace gpupool::worker
