// What runs in the session, and its end at the user's wish: asked for at the doors of its workers, because
// the connections wait for what is to be found out or ended.
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "client/link/door.h"
#include "client/process/interrupt_words.h"
#include "client/process/main_wait.h"
#include "client/session/runtime.h"

namespace gpupool::client {
namespace {

/// Together with the call's own wait for its answer well below the 3 s in which a user hears something.
constexpr int inquiry_ms = 1500;
/// A worker that does not say that it ends is left to the pool; the calls that wait for it return all the
/// same.
constexpr int ending_ms = 500;

void say_on_standard_error(std::string line) {
  line += '\n';
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

/// Does it for each of them at the same time.
template <class Use>
void for_each_at_once(std::size_t count, const Use& use) {
  std::vector<std::thread> threads;
  for (std::size_t n = 1; n < count; ++n) {
    try {
      threads.emplace_back([&use, n] { use(n); });
    } catch (const std::system_error&) {  // no thread: one after the other
      use(n);
    }
  }
  if (count > 0) use(0);
  for (std::thread& one : threads) one.join();
}

}  // namespace

std::vector<Door> Runtime::doors() {
  const MutexLock lock(mutex_);
  std::string error;
  const auto file = read_file(error);
  std::vector<Door> all;
  for (unsigned n = 0; connected() && n < workers(); ++n) {
    all.push_back(links_[n].door);
    if (!file) continue;
    const SessionFile one = file->of_worker(n);  // which knows better where the worker is
    if (one.session == all.back().session && !one.address.empty()) all.back().address = one.address;
  }
  return all;
}

Inquiries Runtime::inquire() {
  const std::vector<Door> all = doors();
  Inquiries answers(all.size());
  for_each_at_once(all.size(), [&](std::size_t n) { answers[n] = client::inquire(all[n], inquiry_ms); });
  return answers;
}

std::string Runtime::inquiry_json() {
  return as_json(forked() ? Inquiries{} : inquire());
}

CUresult Runtime::end_session() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::vector<Door> all = doors();
  {
    const MutexLock lock(mutex_);
    ready_.store(false);
    if (all.empty()) return CUDA_SUCCESS;
    session_.ended();
    over_.store(true);
  }
  for_each_at_once(all.size(),
                   [&](std::size_t n) { static_cast<void>(client::end_session(all[n], ending_ms)); });
  for (unsigned n = 0; n < all.size(); ++n) links_[n].connection.load(std::memory_order_acquire)->give_up();
  return CUDA_SUCCESS;
}

void Runtime::notice_interrupts() {
  watch_main_waits({[this](WaitActions::Clock::time_point since, const std::function<bool()>& goes_on) {
                      const Inquiries answers = inquire();
                      if (!goes_on()) return;
                      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
                          WaitActions::Clock::now() - since);
                      say_on_standard_error(what_runs(answers, waited));
                    },
                    [this] { static_cast<void>(end_session()); }});
}

}  // namespace gpupool::client
