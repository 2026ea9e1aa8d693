#include "worker/conversation/completions.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "generated/wire/control.h"
#include "worker/driver/capture.h"
#include "worker/driver/current.h"

namespace gpupool::worker {
namespace {

constexpr auto shortest_pause = std::chrono::microseconds(20);
constexpr auto longest_pause = std::chrono::microseconds(500);
constexpr auto away_pause = std::chrono::milliseconds(20);  // while memory is away

/// Asking about streams and events is forbidden while another thread captures a graph, and would spoil the
/// capture; a thread that says that it knows what it does may.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { static_cast<void>(api_.cuThreadExchangeStreamCaptureMode_(&mode_)); }
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

Completions::~Completions() {
  {
    const std::lock_guard lock(items_mutex_);
    stopping_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Completions::open(CUcontext home, std::function<void()> send_prints) {
  const std::scoped_lock lock(delivering_, items_mutex_);
  send_prints_ = std::move(send_prints);
  if (!slots_) slots_.emplace(api_, home);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void Completions::close() {
  const std::scoped_lock lock(delivering_, items_mutex_);
  send_prints_ = nullptr;
  std::erase_if(items_, [](const Item& item) { return item.kind != Item::Kind::copy; });
  watched_ = 0;
  for (Item& item : items_) item.name = 0;
  announcements_.clear();
}

void Completions::nudge() {
  {
    const std::lock_guard lock(items_mutex_);
    nudged_ = true;
  }
  wakes_.notify_one();
}

template <class ThereIs>
void Completions::make_room(std::unique_lock<std::mutex>& lock, std::size_t least, std::size_t most,
                            ThereIs there_is) {
  while (!there_is()) {
    lock.unlock();
    const bool made = outlet_.assume_taken(least, most);
    lock.lock();
    if (!made && !there_is()) room_.wait(lock);
  }
}

bool Completions::add(Item item) {
  {
    std::unique_lock lock(items_mutex_);
    if (item.kind != Item::Kind::copy) {
      if (watched_ >= wire::watches) return false;
      ++watched_;
    } else {
      make_room(lock, 0, wire::largest_piece, [this] { return held_ < most_copies; });
      ++undelivered_;
      ++held_;
    }
    items_.push_back(item);
    fresh_ = true;
  }
  wakes_.notify_one();
  return true;
}

bool Completions::watch_event(std::uint64_t watch, CUevent event, CUcontext context) {
  return add({Item::Kind::event, watch, context, event});
}

bool Completions::watch_stream(std::uint64_t watch, CUstream stream, CUcontext context) {
  return add({Item::Kind::stream, watch, context, stream});
}

bool Completions::refuse_watch(std::uint64_t watch, CUresult why) {
  Item item{Item::Kind::event, watch, nullptr, nullptr, why};
  item.known = true;
  return add(item);
}

CUevent Completions::take_event(CUcontext context) {
  auto& free = free_events_[context];
  CUevent event = nullptr;
  if (free.empty()) {
    return api_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
  }
  event = free.back();
  free.pop_back();
  return event;
}

CUresult Completions::copy(std::uint64_t ticket, CUdeviceptr from, std::size_t size, CUstream stream,
                           CUcontext context) {
  std::byte* slot = nullptr;
  CUevent event = nullptr;
  {
    std::unique_lock lock(items_mutex_);
    const bool small = size <= wire::small_piece;
    make_room(lock, small ? 1 : wire::small_piece + 1, small ? wire::small_piece : wire::largest_piece, [&] {
      if (slot == nullptr) slot = slots_->take(size, context);
      return slot != nullptr || held_ == 0;  // or there is no memory
    });
    if (slot != nullptr) event = take_event(context);
  }
  if (slot == nullptr || event == nullptr) {
    if (slot != nullptr) slots_->give(slot, size);
    refuse_copy(ticket, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Item item{Item::Kind::copy, ticket, context, event, CUDA_SUCCESS, slot, size};
  item.result = api_.cuMemcpyDtoHAsync_v2_(slot, from, size, stream);
  if (item.result == CUDA_SUCCESS) {
    item.result = api_.cuEventRecord_(event, stream);
    if (item.result != CUDA_SUCCESS) static_cast<void>(api_.cuStreamSynchronize_(stream));
  }
  item.known = item.result != CUDA_SUCCESS;  // the event then says nothing
  const CUresult result = item.result;
  static_cast<void>(add(item));
  return result;
}

void Completions::refuse_copy(std::uint64_t ticket, CUresult why) {
  Item item{Item::Kind::copy, ticket, nullptr, nullptr, why};
  item.known = true;
  static_cast<void>(add(item));
}

void Completions::forget(const void* object, CUresult why) {
  const std::lock_guard lock(items_mutex_);
  for (Item& item : items_) {
    if (item.object != object || item.kind == Item::Kind::copy || item.known) continue;
    item.known = true;
    item.result = why;
  }
}

void Completions::forget_context(CUcontext context) {
  bool used = false;
  {
    const std::lock_guard lock(items_mutex_);
    used = std::any_of(items_.begin(), items_.end(),
                       [&](const Item& item) { return item.context == context && !item.known; });
  }
  CUresult result = CUDA_SUCCESS;
  if (used) {
    const Current current(api_, context);
    result = current.error() == CUDA_SUCCESS ? api_.cuCtxSynchronize_() : current.error();
  }
  const std::lock_guard lock(items_mutex_);
  for (Item& item : items_) {
    if (item.context != context) continue;
    item.context = nullptr;
    item.object = nullptr;  // it goes with the context
    if (!item.known) item.result = result;
    item.known = true;
  }
  free_events_.erase(context);  // they go with it
}

void Completions::reset() {
  const std::scoped_lock lock(delivering_, items_mutex_);
  items_.clear();
  undelivered_ = held_ = 0;
  watched_ = 0;
  free_events_.clear();
  slots_.reset();
}

CUresult Completions::ask(const Item& item) {
  const Current current(api_, item.context);
  if (current.error() != CUDA_SUCCESS) return current.error();
  if (item.kind != Item::Kind::stream) return api_.cuEventQuery_(static_cast<CUevent>(item.object));
  const auto stream = static_cast<CUstream>(item.object);
  return in_capture(api_, stream) ? CUDA_ERROR_NOT_READY : api_.cuStreamQuery_(stream);
}

void Completions::bring_out_prints(CUcontext context) {
  const Current current(api_, context);
  if (current.error() != CUDA_SUCCESS) return;
  const CUevent event = take_event(context);
  if (event == nullptr) return;
  static_cast<void>(api_.cuEventSynchronize_(event));
  free_events_[context].push_back(event);
}

void Completions::look_at(bool copies, const Residence::Visit& visit, std::vector<Item>& done) {
  const std::uint64_t through = executed_.load(std::memory_order_acquire);
  std::erase_if(items_, [&](Item& item) {
    if ((item.kind == Item::Kind::copy) != copies) return false;
    if (!item.known) {
      if (!visit) return false;
      item.result = ask(item);
      if (item.result == CUDA_ERROR_NOT_READY) return false;
    }
    item.through = through;
    // Nobody has waited, so what kernels printed may still be the driver's: waiting for an event is
    // documented to bring it out, and this one is complete.
    if (!copies && visit && item.result == CUDA_SUCCESS && item.context != nullptr)
      bring_out_prints(item.context);
    if (copies && item.object != nullptr)
      free_events_[item.context].push_back(static_cast<CUevent>(item.object));
    done.push_back(item);
    return true;
  });
}

void Completions::send_copies(std::vector<Item>& done, bool reply_follows) {
  for (Item& item : done) {
    if (item.kind != Item::Kind::copy) continue;
    const auto release = [this, slot = item.slot, size = item.size] {
      if (slot != nullptr) slots_->give(slot, size);
      {
        const std::lock_guard lock(items_mutex_);
        --held_;
      }
      room_.notify_all();
    };
    if (item.name != 0) {
      const bool good = item.result == CUDA_SUCCESS;
      const wire::Buffer fields = wire::packed(wire::Copied{item.name, item.result});
      outlet_.push(wire::Control::copied, fields.bytes(), {item.slot, good ? item.size : 0}, release,
                   reply_follows);
    } else {
      release();
    }
    {
      const std::lock_guard lock(items_mutex_);
      --undelivered_;
    }
    room_.notify_all();
  }
}

void Completions::send_watches(const std::vector<Item>& done) {
  if (send_prints_ == nullptr) return;
  if (std::any_of(done.begin(), done.end(), [](const Item& item) { return item.kind != Item::Kind::copy; })) {
    send_prints_();
  }
  for (const Item& item : done) {
    if (item.kind == Item::Kind::copy) continue;
    const Deferred deferred = take_deferred_();
    const wire::Completed told{item.name, item.through, item.result, deferred.error, deferred.message};
    outlet_.push(wire::Control::completed, wire::packed(told).bytes());
  }
}

void Completions::announce(const wire::HostFunction& call, std::function<void()> untold) {
  {
    const std::lock_guard lock(items_mutex_);
    announcements_.push_back({call, std::move(untold)});
    fresh_ = true;
  }
  wakes_.notify_one();
}

void Completions::send_announcements(const std::vector<Announcement>& announcements) {
  for (const Announcement& one : announcements) {
    if (!outlet_.push(wire::Control::host_function, wire::packed(one.call).bytes())) one.untold();
  }
}

Completions::Left Completions::look() {
  const std::lock_guard delivering(delivering_);
  std::vector<Item> done;
  std::vector<Announcement> announcements;
  Left left = Left::nothing;
  {
    // Before the mutex: its holder must not wait for memory.
    const Residence::Visit visit(residence_);
    const std::lock_guard lock(items_mutex_);
    std::optional<RelaxedCapture> relaxed;
    if (visit) relaxed.emplace(api_);
    fresh_ = false;
    announcements.swap(announcements_);  // before the copies are looked at: what is complete now goes before
    look_at(false, visit, done);
    watched_ -= std::min(watched_, done.size());
    look_at(true, visit, done);
    if (!items_.empty()) left = visit ? Left::something : Left::until_memory_is_back;
  }
  send_copies(done, false);
  send_watches(done);
  send_announcements(announcements);
  return left;
}

bool Completions::idle() {
  const std::unique_lock delivering(delivering_, std::try_to_lock);
  if (!delivering.owns_lock()) return false;
  const std::lock_guard lock(items_mutex_);
  return std::none_of(items_.begin(), items_.end(), [](const Item& item) { return item.name != 0; });
}

void Completions::deliver(bool reply_follows) {
  if (undelivered_.load() == 0) return;
  const std::lock_guard delivering(delivering_);
  std::vector<Item> done;
  {
    const Residence::Visit visit(residence_);
    const std::lock_guard lock(items_mutex_);
    std::optional<RelaxedCapture> relaxed;
    if (visit) relaxed.emplace(api_);
    look_at(true, visit, done);
  }
  send_copies(done, reply_follows);
}

/// Asks often at first, then less and less: what takes long may be told a little late.
void Completions::run() {
  prctl(PR_SET_NAME, "gpupool-done");
  prctl(PR_SET_TIMERSLACK, 1000);
  auto pause = shortest_pause;
  std::unique_lock lock(items_mutex_);
  while (!stopping_) {
    if (fresh_) pause = shortest_pause;
    const bool nudged = std::exchange(nudged_, false);
    lock.unlock();
    if (nudged) {
      outlet_.tell_progress();
      if (on_nudge_) on_nudge_();
    }
    const Left left = look();
    lock.lock();
    if (fresh_ || nudged_ || stopping_) continue;
    if (left == Left::until_memory_is_back) {
      wakes_.wait_for(lock, away_pause, [this] { return fresh_ || nudged_ || stopping_; });
    } else if (left == Left::something) {
      wakes_.wait_for(lock, pause, [this] { return fresh_ || nudged_ || stopping_; });
      pause = std::min<std::chrono::microseconds>(longest_pause, pause + pause / 4);
    } else {
      wakes_.wait(lock, [this] { return fresh_ || nudged_ || stopping_; });
    }
  }
}

}  // namespace gpupool::worker
