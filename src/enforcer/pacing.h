// How much work may lie on a device unfinished, so that a turn can end soon after it is over. Pure.
//
// Work is cut into pieces; when a piece is complete its time has been measured, and with it how long calls
// like those in it take. So what is under way is known well enough before it is finished. A call is told by a
// key: the same kernel with the same grid, or the same graph, takes about the same time. What was never seen
// is measured alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace gpupool::enforcer {

class Pacing {
 public:
  static constexpr std::uint64_t piece_ns = 2'000'000;
  static constexpr std::uint32_t most_in_piece = 256;
  static constexpr std::uint64_t shared_ns =
      4'000'000;  ///< under way while others wait: one piece runs, one is next
  static constexpr std::uint64_t alone_ns = 20'000'000;   ///< and while nobody does
  static constexpr std::uint64_t unknown_ns = 3'000'000;  ///< what a call that was never seen is taken for

  /// Whether the piece that is open should end before a call of this key.
  [[nodiscard]] bool full(std::uint64_t key) const {
    return open_.calls >= most_in_piece || open_.ns >= piece_ns ||
           (open_.calls != 0 && (open_.unknown || !cost(key).known));
  }
  /// A call gives the device work.
  void submitted(std::uint64_t key) {
    Cost& seen = costs_[index(key)];
    if (seen.key != key) seen = {key, unknown_ns, false};
    open_.unknown = open_.unknown || !seen.known;
    open_.ns += seen.ns;
    ++open_.calls;
    if (open_.parts.empty() || open_.parts.back().index != index(key))
      open_.parts.push_back({index(key), seen.ns});
  }
  /// The piece ends; `number` is how it is known.
  void cut(std::uint64_t number) {
    if (open_.calls == 0) return;
    open_.number = number;
    under_way_ns_ += open_.ns;
    pieces_.push_back(std::move(open_));
    open_ = {};
  }
  /// All pieces before `first_unfinished` are complete; those that were not before took `busy_ns` together.
  /// False: there is none of them.
  bool completed(std::uint64_t first_unfinished, std::uint64_t busy_ns) {
    std::uint64_t expected = 0;
    std::size_t count = 0;
    while (count < pieces_.size() && pieces_[count].number < first_unfinished)
      expected += pieces_[count++].ns;
    if (count == 0) return false;
    const double ratio =
        static_cast<double>(busy_ns) / static_cast<double>(std::max<std::uint64_t>(expected, 1));
    for (; count > 0; --count) {
      for (const Part& part : pieces_.front().parts) learn(costs_[part.index], part.ns, ratio);
      under_way_ns_ -= pieces_.front().ns;
      pieces_.pop_front();
    }
    return true;
  }
  /// How long the device still needs, as far as can be told.
  [[nodiscard]] std::uint64_t under_way_ns() const { return under_way_ns_ + open_.ns; }
  /// Whether more would be too much.
  [[nodiscard]] bool enough(bool shared) const {
    return pieces_.size() >= 2 && under_way_ns_ >= (shared ? shared_ns : alone_ns);
  }

 private:
  struct Cost {
    std::uint64_t key = 0, ns = unknown_ns;
    bool known = false;
  };
  struct Part {
    std::size_t index;  // in costs_
    std::uint64_t ns;   // what it was taken for
  };
  struct Piece {
    std::uint64_t number = 0, ns = 0;
    std::uint32_t calls = 0;
    bool unknown = false;  // it holds a call that was never measured
    std::vector<Part> parts;
  };

  static constexpr std::size_t most_costs = 1024;
  static constexpr double least_ns = 1'000, most_ns = 60e9;

  [[nodiscard]] static std::size_t index(std::uint64_t key) {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15U) >> 54U) % most_costs;
  }
  [[nodiscard]] Cost cost(std::uint64_t key) const {
    const Cost& seen = costs_[index(key)];
    return seen.key == key ? seen : Cost{key, unknown_ns, false};
  }
  /// What is measured together is shared out as it was expected.
  static void learn(Cost& cost, std::uint64_t taken_for_ns, double ratio) {
    const double measured = static_cast<double>(taken_for_ns) * ratio;
    const double now = cost.known ? (static_cast<double>(cost.ns) + measured) / 2 : measured;
    cost.ns = static_cast<std::uint64_t>(std::clamp(now, least_ns, most_ns));
    cost.known = true;
  }

  std::array<Cost, most_costs> costs_;
  std::deque<Piece> pieces_;
  std::uint64_t under_way_ns_ = 0;  // of pieces_
  Piece open_;
};

}  // namespace gpupool::enforcer
