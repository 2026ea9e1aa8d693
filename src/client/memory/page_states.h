// Which pages of a range are valid on the host, on the device, or on both. Pure: the caller moves the bytes
// and sets the protection of the pages.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gpupool::client {

class PageStates {
 public:
  enum class State : std::uint8_t {
    device,  ///< the device may have written it: the host must fetch it first
    shared,  ///< both have the same: the host may read it
    dirty,   ///< the host may have written it: the device must get it first
  };
  struct Span {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    bool operator==(const Span&) const = default;
  };
  /// What a host's access asks for: nothing, to fetch a span, or to let the host write to it.
  struct Step {
    enum class Kind : std::uint8_t { nothing, fetch, open } kind;
    Span span;
    State then;  ///< state of the span once that is done
  };

  /// All pages are shared at first.
  explicit PageStates(std::uint64_t pages);

  [[nodiscard]] State at(std::uint64_t page) const;
  void set(Span span, State state);
  /// All spans of a state, in order.
  [[nodiscard]] std::vector<Span> spans(State state) const;
  /// Whether the host may use any page.
  [[nodiscard]] bool any_on_host() const;

  /// The host touched a page that is protected. Accesses in ascending order get ever larger spans, so that a
  /// loop over an array does not fault for each page. Changes no state: set() does, when the step is done.
  Step touched(std::uint64_t page, bool write);

  static constexpr std::uint64_t first_window = 16;   ///< pages: 64 KiB
  static constexpr std::uint64_t last_window = 4096;  ///< 16 MiB

 private:
  struct Reader {
    std::uint64_t next = 0;  ///< page behind the last span
    std::uint64_t window = first_window;
  };
  Span window_at(Reader& reader, std::uint64_t page) const;
  [[nodiscard]] std::uint64_t end_of(std::map<std::uint64_t, State>::const_iterator run) const;

  std::uint64_t pages_;
  std::map<std::uint64_t, State> runs_;  ///< first page -> state, up to the next run; neighbours differ
  Reader fetching_, opening_;
};

}  // namespace gpupool::client
