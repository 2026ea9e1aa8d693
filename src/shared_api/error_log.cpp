#include "shared_api/error_log.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace gpupool {
namespace {

constexpr std::string_view truncated = "[earlier messages are left out]\n";

}  // namespace

ErrorLog& error_log() {
  static ErrorLog* const only = new ErrorLog;
  return *only;
}

void ErrorLog::add(std::string_view line) {
  bool heard = false;
  {
    const MutexLock lock(mutex_);
    lines_.emplace_back(line);
    lines_.back() += '\n';
    if (lines_.size() > most_lines) {
      lines_.pop_front();
      ++dropped_;
    }
    heard = !callbacks_.empty();
  }
  if (!heard) return;
  if (CallbacksLater::depth_ == 0) {
    tell(std::string(line));
    return;
  }
  auto*& waiting = CallbacksLater::waiting_;
  if (waiting == nullptr) waiting = new std::vector<CallbacksLater::Waiting>;
  waiting->push_back({this, std::string(line)});
}

void ErrorLog::tell(const std::string& line) {
  std::vector<Callback> told;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, callback] : callbacks_) told.push_back(callback);
  }
  // Without the lock: a callback may register another one, or make a call that fails.
  for (const Callback& callback : told) {
    std::string text(line);
    callback.function(callback.data, CU_LOG_LEVEL_ERROR, text.data(), text.size());
  }
}

void CallbacksLater::tell() noexcept {
  // Taken first: a callback may make a call that fails, whose lines are told at that call's end.
  const std::unique_ptr<std::vector<Waiting>> lines(std::exchange(waiting_, nullptr));
  for (const Waiting& waiting : *lines) {
    try {
      waiting.log->tell(waiting.line);
    } catch (...) {  // without memory nobody is told; what a callback throws concerns no call
    }
  }
}

std::uint64_t ErrorLog::add_callback(CUlogsCallback callback, void* data) {
  const MutexLock lock(mutex_);
  callbacks_[next_callback_] = {callback, data};
  return next_callback_++;
}

bool ErrorLog::remove_callback(std::uint64_t number) {
  const MutexLock lock(mutex_);
  return callbacks_.erase(number) != 0;
}

std::uint32_t ErrorLog::next() const {
  const MutexLock lock(mutex_);
  return dropped_ + static_cast<std::uint32_t>(lines_.size());
}

std::string ErrorLog::text(std::uint32_t& first, std::size_t room) const {
  const MutexLock lock(mutex_);
  const auto end = dropped_ + static_cast<std::uint32_t>(lines_.size());
  const std::uint32_t wanted = std::min(first, end);
  std::uint32_t from = std::max(wanted, dropped_);
  std::size_t size = 0;
  std::uint32_t fits = end;
  while (fits > from && size + lines_[fits - 1 - dropped_].size() <= room) {
    size += lines_[--fits - dropped_].size();
  }
  const bool cut = fits > wanted;
  // Room for the note is made by leaving out the oldest lines that would fit.
  while (cut && fits < end && size + truncated.size() > room) size -= lines_[fits++ - dropped_].size();
  std::string out;
  if (cut && truncated.size() <= room) out = truncated;
  for (std::uint32_t n = fits; n < end; ++n) out += lines_[n - dropped_];
  first = end;
  return out;
}

}  // namespace gpupool
