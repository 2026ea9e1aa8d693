#include "client/memory/page_states.h"

#include <algorithm>

namespace gpupool::client {

PageStates::PageStates(std::uint64_t pages) : pages_(pages) {
  runs_.emplace(0, State::shared);
}

std::uint64_t PageStates::end_of(std::map<std::uint64_t, State>::const_iterator run) const {
  const auto next = std::next(run);
  return next == runs_.end() ? pages_ : next->first;
}

PageStates::State PageStates::at(std::uint64_t page) const {
  return std::prev(runs_.upper_bound(page))->second;
}

void PageStates::set(Span span, State state) {
  const std::uint64_t end = std::min(span.first + span.count, pages_);
  if (span.first >= end) return;
  const State behind = end < pages_ ? at(end) : state;
  const State before = span.first > 0 ? at(span.first - 1) : state;
  runs_.erase(runs_.lower_bound(span.first), runs_.upper_bound(end));
  if (span.first == 0 || before != state) runs_.emplace(span.first, state);
  if (end < pages_ && behind != state) runs_.emplace(end, behind);
}

std::vector<PageStates::Span> PageStates::spans(State state) const {
  std::vector<Span> found;
  for (auto run = runs_.begin(); run != runs_.end(); ++run) {
    if (run->second == state) found.push_back({run->first, end_of(run) - run->first});
  }
  return found;
}

bool PageStates::any_on_host() const {
  return runs_.size() > 1 || runs_.begin()->second != State::device;
}

/// The part of the page's run that is handled at once: from the start of its block on.
PageStates::Span PageStates::window_at(Reader& reader, std::uint64_t page) const {
  const auto run = std::prev(runs_.upper_bound(page));
  const std::uint64_t begin = std::max(run->first, page / first_window * first_window);
  const bool in_order = reader.next != 0 && reader.next == begin;
  reader.window = in_order ? std::min(reader.window * 2, last_window) : first_window;
  const std::uint64_t block_end = begin / first_window * first_window + reader.window;
  const std::uint64_t end = std::min(std::max(block_end, page + 1), end_of(run));
  reader.next = end;
  return {begin, end - begin};
}

PageStates::Step PageStates::touched(std::uint64_t page, bool write) {
  switch (at(page)) {
    case State::device:
      return {Step::Kind::fetch, window_at(fetching_, page), write ? State::dirty : State::shared};
    case State::shared:  // readable, so this was a write
      return {Step::Kind::open, window_at(opening_, page), State::dirty};
    case State::dirty:
      break;
  }
  return {Step::Kind::nothing, {page, 1}, State::dirty};
}

}  // namespace gpupool::client
