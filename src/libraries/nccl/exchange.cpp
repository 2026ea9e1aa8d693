// One loop for all communicators of a group: their tracks go on as far as they can, then it waits for
// sockets.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>

#include "libraries/nccl/communicator.h"
#include "libraries/nccl/context.h"
#include "libraries/nccl/step.h"

namespace gpupool::nccl {
namespace {

/// How late an abort is noticed at most.
constexpr int poll_milliseconds = 20;

bool any_stopped(const std::vector<Work>& work) {
  return std::any_of(work.begin(), work.end(), [](const Work& one) { return one.communicator->stop.load(); });
}

/// Plans of one communicator that go one after another, piece by piece.
class Track {
 public:
  /// `all`: what is done at the same time. Who aborts a part of it ends all.
  Track(Communicator& owner, const std::vector<Work>& all) : owner_(owner), all_(all) {}

  void add(const Plan& plan) { plans_.push_back(&plan); }
  [[nodiscard]] bool is_over() const { return plans_.empty(); }

  /// Begins or ends a step. False: there is nothing to do but to wait.
  bool advance() {
    if (plans_.empty()) return false;
    const Plan& plan = *plans_.front();
    if (step_ == nullptr) {
      const InContext inside(owner_.context);
      const std::size_t count = std::min(plan.count - begin_, Step::most_elements(plan.type));
      step_ = std::make_unique<Step>(plan, owner_.rank, begin_, count);
      begin_ += count;
      step_->start(*owner_.mesh, [this] { return any_stopped(all_); });
      return true;
    }
    if (!step_->is_done()) return false;
    const InContext inside(owner_.context);
    step_->finish();
    step_.reset();
    if (begin_ == plan.count) {
      plans_.pop_front();
      begin_ = 0;
    }
    return true;
  }

 private:
  Communicator& owner_;
  const std::vector<Work>& all_;
  std::deque<const Plan*> plans_;
  std::unique_ptr<Step> step_;
  std::size_t begin_ = 0;
};

/// Collectives are one track; sends to a rank are one, and receives from it another.
std::vector<std::unique_ptr<Track>> tracks_of(const std::vector<Work>& work) {
  std::vector<std::unique_ptr<Track>> all;
  for (const Work& one : work) {
    std::map<std::pair<int, int>, Track*> own;
    for (const Plan& plan : one.plans) {
      if (plan.count == 0) continue;
      std::pair<int, int> kind{0, 0};
      if (plan.lane == Lane::pairs) {
        for (int rank = 0; rank < one.communicator->ranks; ++rank) {
          const auto place = static_cast<std::size_t>(rank);
          if (plan.to[place] != 0) kind = {1, rank};
          if (plan.from[place] != 0) kind = {2, rank};
        }
      }
      Track*& track = own[kind];
      if (track == nullptr) {
        all.push_back(std::make_unique<Track>(*one.communicator, work));
        track = all.back().get();
      }
      track->add(plan);
    }
  }
  return all;
}

void wait_for_sockets(const std::vector<Work>& work) {
  std::vector<pollfd> polled;
  for (const Work& one : work) one.communicator->mesh->add_to(polled);
  const int found = poll(polled.data(), polled.size(), poll_milliseconds);
  require(found >= 0 || errno == EINTR, "poll failed", system_error);
}

void go_on_until_done(const std::vector<Work>& work) {
  const std::vector<std::unique_ptr<Track>> tracks = tracks_of(work);
  for (;;) {
    bool moved = false;
    for (const auto& track : tracks) moved = track->advance() || moved;
    if (std::all_of(tracks.begin(), tracks.end(), [](const auto& track) { return track->is_over(); })) return;
    require(!any_stopped(work), "the communicator was aborted", invalid_usage);
    for (const Work& one : work) one.communicator->mesh->move();
    if (!moved) wait_for_sockets(work);
  }
}

}  // namespace

void exchange(std::vector<Work> work) {
  std::sort(work.begin(), work.end(),
            [](const Work& a, const Work& b) { return a.communicator.get() < b.communicator.get(); });
  std::vector<std::unique_lock<std::mutex>> locks;
  for (const Work& one : work) {
    locks.emplace_back(one.communicator->busy);
    one.communicator->require_working();
  }
  const auto end_all = [&](Result why) {
    for (const Work& one : work) one.communicator->end(why);
  };
  try {
    go_on_until_done(work);
  } catch (const Failure& failure) {
    end_all(failure.result);
    throw;
  } catch (...) {
    end_all(internal_error);
    throw;
  }
}

}  // namespace gpupool::nccl
