// The calls that made and configured the objects that a session has now, in the order in which they came:
// called again in another worker they make the same objects under the same handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/image/move_rules.h"
#include "worker/objects/handle_table.h"

namespace gpupool::worker {

/// Written by the executing thread after each call that the protocol table says is to be repeated, or stands
/// in the way of moving. A call that has lost its object is forgotten now and then, so that a program which
/// makes and destroys streams for ever costs no more than one that does not.
class SessionJournal {
 public:
  struct Call {
    std::uint16_t message = 0;
    MoveObstacle obstacle = MoveObstacle::none;
    std::uint32_t lane = 0;     ///< the client's thread, whose per-thread stream may be meant
    std::uint64_t context = 0;  ///< that was current: the client's handle, or 0
    MoveNames names;
    std::vector<std::byte> body;
  };

  /// `call` has succeeded. Cheap for messages that leave nothing behind.
  void note(std::uint16_t message, std::uint32_t lane, std::uint64_t context, std::span<const std::byte> body,
            const HandleTable& handles);
  /// A call whose message is not what has to be repeated.
  void note(Call call, const HandleTable& handles);

  /// What still counts, oldest first. Valid until the next call of a member.
  [[nodiscard]] const std::vector<Call>& calls(const HandleTable& handles);
  /// What keeps the session from moving: an object of a kind that cannot be carried, or a call that cannot be
  /// repeated. Not `thorough`: whose object may have ended since it was last looked for.
  [[nodiscard]] MoveObstacle obstacle(const HandleTable& handles, bool thorough = true);

  void clear() {
    calls_.clear();
    in_the_way_ = MoveObstacle::none;
    prune_at_ = least_prune;
  }

 private:
  static constexpr std::size_t least_prune = 1024;
  void prune(const HandleTable& handles);

  std::vector<Call> calls_;
  MoveObstacle in_the_way_ = MoveObstacle::none;  ///< of the first of calls_ that has one
  std::size_t prune_at_ = least_prune;
};

}  // namespace gpupool::worker
