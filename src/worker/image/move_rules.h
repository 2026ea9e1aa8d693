// What of a session's past has to be repeated, or stands in the way, when the session moves to another
// worker. Made from the protocol table (src/protocol/moves.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "generated/message_ids.h"
#include "wire/handle.h"

namespace gpupool::worker {

/// Why a session cannot be written out and resumed elsewhere.
enum class MoveObstacle : std::uint8_t {
  none,
  graphs,
  arrays,
  ipc,
  links,
  capture,
  global_addresses,
  contexts,
  other
};

/// The obstacle's id as the node agent knows it; "ok" for none.
[[nodiscard]] constexpr const char* name_of(MoveObstacle obstacle) {
  switch (obstacle) {
    case MoveObstacle::none:
      break;
    case MoveObstacle::graphs:
      return "graphs";
    case MoveObstacle::arrays:
      return "arrays";
    case MoveObstacle::ipc:
      return "ipc";
    case MoveObstacle::links:
      return "links";
    case MoveObstacle::capture:
      return "capture";
    case MoveObstacle::global_addresses:
      return "global-addresses";
    case MoveObstacle::contexts:
      return "contexts";
    case MoveObstacle::other:
      return "other";
  }
  return "ok";
}

/// What a message that is written down names.
struct MoveNames {
  std::array<std::uint64_t, 3> handles{};  ///< of the client; 0: none
  std::uint64_t made = 0;                  ///< the one of them that is a new object's
  bool replaces = false;                   ///< takes the place of an earlier one with the same `same`
  std::string same;

  template <class T>
  void also_same(const T& value) {
    same.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
};

/// One row per message.
struct MoveRule {
  MoveObstacle obstacle;  ///< none: the message is repeated
  /// Null: nothing is written down. Else false for a body that does not decode.
  bool (*names)(std::span<const std::byte> body, MoveNames& out);
};

extern const MoveRule move_rules[message_count];

/// Whether an object of the kind keeps the session from moving for as long as it exists.
[[nodiscard]] MoveObstacle obstacle_of(wire::Kind kind);

}  // namespace gpupool::worker
