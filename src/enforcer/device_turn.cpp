#include "enforcer/device_turn.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace gpupool::enforcer {
namespace {

constexpr std::int64_t poll_ns = 50'000;          // for the end of what is under way
constexpr std::int64_t keeper_poll_ns = 100'000;  // the same, when the executing thread is elsewhere
constexpr std::int64_t keeper_rest_ns = 1'000'000'000;
/// A stream may wait for what a later call brings: whoever waits for the device to finish gives up at some
/// time.
constexpr std::int64_t most_pacing_ns = 250'000'000;
constexpr std::int64_t most_draining_ns = 2'000'000'000;
/// What is shorter ends sooner than it is stopped.
constexpr std::int64_t stop_after_ns = 10'000'000;
/// For so long after somebody waited for the device it is taken to be shared.
constexpr std::int64_t shared_memory_ns = 100'000'000;
constexpr std::uint32_t most_in_vain = 64;

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// What is charged for a device that was kept, for nobody else could use it meanwhile. Beyond its time nobody
/// wanted it, or this thread had no processor.
std::uint64_t kept_ns(std::int64_t gap) {
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(gap, 0, DeviceTurn::thinking_ns));
}

std::uint64_t unsigned_now() {
  return static_cast<std::uint64_t>(now_ns());
}

}  // namespace

DeviceTurn::DeviceTurn(const std::string& path, const std::atomic<std::uint32_t>& milli, bool strict,
                       Gauge& gauge, SessionFacts facts)
    : file_(path),
      book_(file_.book()),
      slot_(file_.slot()),
      share_(milli),
      gauge_(gauge),
      facts_(std::move(facts)),
      milli_(milli.load()),
      charged_ns_(gauge_.look().busy_ns) {
  if (strict) bucket_.emplace(std::max(milli_, 1U), now_ns());
  {
    const TurnFile::Lock lock(file_);
    book_.join(slot_, milli_);
  }
  keeper_ = std::thread([this] { keep(); });
}

DeviceTurn::~DeviceTurn() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    auto& bell = file_.book().places[slot_].bell;
    bell.fetch_add(1);
    wake(bell);
  }
  keeper_.join();
  const MutexLock lock(mutex_);
  run_on();
  hand_back();
  const TurnFile::Lock file_lock(file_);
  book_.leave(slot_);
}

void DeviceTurn::nap(std::int64_t ns) {
  const MutexUnlock unlocked(mutex_);
  const timespec pause{ns / 1'000'000'000, ns % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
}

void DeviceTurn::follow_share() {
  const std::uint32_t share = share_.load(std::memory_order_relaxed);
  if (share == milli_) return;
  milli_ = share;
  book_.resize(slot_, share);
  if (bucket_) bucket_->resize(std::max(share, 1U), now_ns());
}

/// Charges what has become known. Whether there is still work under way.
bool DeviceTurn::account() {
  const Gauge::Reading reading = gauge_.look();
  const std::uint64_t fresh = reading.busy_ns - std::min(charged_ns_, reading.busy_ns);
  charged_ns_ += fresh;
  piece_busy_ns_ += fresh;
  book_.charge(slot_, fresh);
  if (bucket_) bucket_->spend(static_cast<std::int64_t>(fresh));
  if (pacing_.completed(reading.first_unfinished, piece_busy_ns_)) piece_busy_ns_ = 0;
  if (!reading.in_flight) book_.drained(slot_);
  return reading.in_flight;
}

/// The next gets the turn, if there is one.
void DeviceTurn::hand_back() {
  if (std::exchange(kept_, false)) book_.charge(slot_, kept_ns(now_ns() - idle_since_ns_));
  if (!book_.has(slot_) || !book_.give_up(slot_)) return;
  std::optional<std::size_t> next;
  {
    const TurnFile::Lock lock(file_);
    next = book_.pass(unsigned_now(), [this](std::size_t slot) { return file_.alive(slot); });
  }
  if (next) wake(file_.book().places[*next].granted);
}

/// A session that waits for each of its kernels would otherwise never get more than one of them at a time.
bool DeviceTurn::kept_for_thinking() {
  if (bucket_ || !book_.behind(slot_)) return false;
  if (kept_) {
    if (now_ns() - idle_since_ns_ < thinking_ns) return true;
    in_vain_ = std::min(2 * in_vain_, most_in_vain);
    not_kept_ = in_vain_;
    return false;
  }
  if (not_kept_ == 0) return true;
  --not_kept_;
  return false;
}

/// The session has the turn and nothing to do with it.
void DeviceTurn::rest() {
  if (idle_since_ns_ == 0) idle_since_ns_ = now_ns();
  if (kept_for_thinking()) {
    kept_ = true;
  } else {
    hand_back();
  }
}

bool DeviceTurn::before_work(std::uint64_t key) {
  const MutexLock lock(mutex_);
  follow_share();
  if (idle_since_ns_ != 0) {
    const std::int64_t gap = now_ns() - idle_since_ns_;
    if (std::exchange(kept_, false)) {
      if (gap <= thinking_ns) in_vain_ = 1;
      book_.charge(slot_, kept_ns(gap));
    }
    idle_since_ns_ = 0;
  }
  asking_ = true;
  const bool good = gets_turn(key);
  asking_ = false;
  open_ = good;
  if (good) pacing_.submitted(key);
  return good;
}

bool DeviceTurn::gets_turn(std::uint64_t key) {
  for (;;) {
    if (book_.has(slot_)) {
      run_on();
      if (goes_on(key)) return true;
    }
    if (!wait_for_turn(facts_.admitted, true)) return false;
  }
}

/// Whether the session has had its turn, and the device should go to another.
bool DeviceTurn::is_over() {
  return bucket_ ? bucket_->empty(now_ns()) : book_.over(slot_, 0);
}

/// False: the device cannot stop what runs.
bool DeviceTurn::stop_running() {
  stopped_ = stopped_ || gauge_.stop();
  return stopped_;
}

void DeviceTurn::run_on() {
  if (std::exchange(stopped_, false)) gauge_.go_on();
}

/// The session has the turn: whether it may give the device more work now.
bool DeviceTurn::goes_on(std::uint64_t key) {
  const bool contended = book_.contended();
  if (!pacing_.full(key) && !contended) return true;
  if (pacing_.full(key)) {
    pacing_.cut(gauge_.cut());
    static_cast<void>(account());
  }
  const std::int64_t began = now_ns();
  while (book_.has(slot_)) {
    const bool spent = bucket_ && bucket_->empty(now_ns());
    if (spent || book_.over(slot_, pacing_.under_way_ns())) return end_turn();
    if (book_.contended()) shared_at_ns_ = now_ns();
    const bool shared = bucket_ || now_ns() - shared_at_ns_ < shared_memory_ns;
    if (!pacing_.enough(shared) || facts_.needed() || now_ns() - began > most_pacing_ns) return true;
    nap(poll_ns);
    static_cast<void>(account());
  }
  return false;
}

/// Gives the turn back once the device has finished. True: it is kept, for the device cannot finish without
/// more.
bool DeviceTurn::end_turn() {
  open_ = false;
  pacing_.cut(gauge_.cut());
  const std::int64_t began = now_ns();
  while (account() && book_.has(slot_) && now_ns() - began < most_draining_ns) {
    if (facts_.needed()) {
      if (!bucket_ || !bucket_->empty(now_ns())) return true;
      break;  // a hard cap holds then, too: what is needed comes when there is something in the bucket
    }
    if (now_ns() - began > stop_after_ns && stop_running()) break;
    nap(poll_ns);
  }
  if (bucket_ && bucket_->empty(now_ns())) {
    hand_back();
    return false;
  }
  // It wants the turn again, and says so before another has it. Perhaps it is still the next: what was under
  // way may have been less than it seemed.
  std::optional<std::size_t> next;
  {
    const TurnFile::Lock lock(file_);
    book_.want(slot_, unsigned_now());
    static_cast<void>(book_.give_up(slot_));
    next = book_.pass(unsigned_now(), [this](std::size_t slot) { return file_.alive(slot); });
  }
  if (next && *next != slot_) wake(file_.book().places[*next].granted);
  if (!book_.has(slot_)) return false;
  run_on();
  return true;
}

bool DeviceTurn::wait_for_tokens(const std::function<bool()>& wanted) {
  while (bucket_) {
    const std::int64_t wait = bucket_->wait_ns(now_ns());
    if (wait == 0) break;
    if (!wanted()) return false;
    nap(std::min(wait, look_after_ns));
    follow_share();
  }
  return true;
}

/// False: it was not `wanted` any more. `for_call`: the executing thread waits, and not its keeper.
bool DeviceTurn::wait_for_turn(const std::function<bool()>& wanted, bool for_call) {
  static_cast<void>(account());
  if (bucket_ && bucket_->empty(now_ns()) && !wait_for_tokens(wanted)) return false;
  if (book_.take(slot_, unsigned_now())) return true;
  auto& places = file_.book().places;
  const auto alive = [this](std::size_t slot) { return file_.alive(slot); };
  while (wanted()) {
    follow_share();
    static_cast<void>(account());  // what it had given the device when others lost patience
    const std::uint32_t granted = places[slot_].granted.load();
    std::optional<std::size_t> next;
    {
      const TurnFile::Lock lock(file_);
      book_.want(slot_, unsigned_now());
      next = book_.pass(unsigned_now(), alive);
    }
    if (next && *next != slot_) wake(places[*next].granted);
    if (book_.has(slot_)) return true;
    if (const auto holder = book_.holder()) {
      places[*holder].bell.fetch_add(1);
      wake(places[*holder].bell);
    }
    {
      const MutexUnlock unlocked(mutex_);
      sleep_on(places[slot_].granted, granted, look_after_ns);
    }
    if (book_.has(slot_)) return true;
  }
  // The executing thread waits for the same turn by now.
  if (!for_call && asking_) return false;
  {
    const TurnFile::Lock lock(file_);
    book_.withdraw(slot_);
  }
  hand_back();  // it may have been given just now
  return false;
}

void DeviceTurn::paused(std::uint64_t number) {
  const MutexLock lock(mutex_);
  pacing_.cut(number);
  open_ = false;
  if (book_.has(slot_) && !account()) rest();
}

void DeviceTurn::tidy() {
  const MutexLock lock(mutex_);
  if (!open_ && !asking_ && book_.has(slot_) && !account()) hand_back();
}

/// The session's work stands still for a reason of its own: it keeps no device from others.
void DeviceTurn::give_all_up() {
  {
    const TurnFile::Lock lock(file_);
    book_.withdraw(slot_);
  }
  run_on();
  hand_back();
}

/// What the executing thread is too far away to do: it has no call that asks for the turn.
void DeviceTurn::attend() {
  if (!stopped_ && book_.has(slot_)) {
    if (!book_.contended() && !bucket_) return;
    if (!account()) return rest();
    if (!is_over() || !stop_running()) return;
    hand_back();
  } else if (!stopped_) {
    // It works without a turn: others lost patience, or it goes on under a new lease. Where the device cannot
    // stop it, a turn would be of no use to it, and whoever comes next would wait for its end.
    if (!account() || facts_.needed() || !gauge_.can_stop()) return;
    if (book_.take(slot_, unsigned_now()) || !stop_running()) return;
  }
  if (wait_for_turn([this]() REQUIRES(mutex_) { return !stopping_ && !asking_ && !facts_.stands(); }, false))
    run_on();
}

/// Sleeps until somebody wants the device, then sees to it that the turn goes on when the work is done, or
/// when it has taken its time.
void DeviceTurn::keep() {
  prctl(PR_SET_NAME, "gpupool-turn");
  prctl(PR_SET_TIMERSLACK, 1000);
  auto& bell = file_.book().places[slot_].bell;
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const std::uint32_t rung = bell.load();
    if (facts_.stands()) {
      give_all_up();
    } else if (!open_ && !asking_) {
      attend();
    }
    if (stopped_ || (book_.has(slot_) && (book_.contended() || bucket_))) {
      nap(keeper_poll_ns);
    } else {
      const MutexUnlock unlocked(mutex_);
      sleep_on(bell, rung, keeper_rest_ns);
    }
  }
}

}  // namespace gpupool::enforcer
