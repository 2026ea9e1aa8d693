#include "libraries/nccl/group.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace gpupool::nccl {
namespace {

struct Meetings {
  std::shared_ptr<Communicator> parent;
  std::vector<std::function<void()>> all;

  void hold() const {
    for (const auto& meeting : all) meeting();
  }
};

struct Group {
  int depth = 0;
  int failed = success;
  std::vector<Work> work;
  std::vector<Meetings> meetings;
};

thread_local Group group;

/// All at the same time, since each waits for the others. The first failure is the result.
void meet_all(const std::vector<Meetings>& meetings) {
  if (meetings.size() == 1) return meetings.front().hold();
  std::vector<std::exception_ptr> failures(meetings.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          meetings[i].hold();
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

void start_group() {
  ++group.depth;
}

void end_group() {
  require(group.depth > 0, "no group was started", invalid_usage);
  if (--group.depth > 0) return;
  const Group ended = std::exchange(group, Group{});
  if (ended.failed != success) throw Failure(static_cast<Result>(ended.failed), "a call of the group failed");
  if (!ended.meetings.empty()) meet_all(ended.meetings);
  if (!ended.work.empty()) exchange(ended.work);
}

void submit(std::shared_ptr<Communicator> communicator, Plan plan) {
  if (group.depth == 0) {
    std::vector<Work> work(1);
    work[0].communicator = std::move(communicator);
    work[0].plans.push_back(std::move(plan));
    return exchange(std::move(work));
  }
  auto found = std::find_if(group.work.begin(), group.work.end(),
                            [&](const Work& one) { return one.communicator == communicator; });
  if (found == group.work.end()) found = group.work.insert(found, Work{std::move(communicator), {}});
  found->plans.push_back(std::move(plan));
}

void submit(std::function<void()> meeting, std::shared_ptr<Communicator> parent) {
  if (group.depth == 0) return meeting();
  auto found = group.meetings.end();
  if (parent != nullptr) {
    found = std::find_if(group.meetings.begin(), group.meetings.end(),
                         [&](const Meetings& one) { return one.parent == parent; });
  }
  if (found == group.meetings.end()) found = group.meetings.insert(found, Meetings{std::move(parent), {}});
  found->all.push_back(std::move(meeting));
}

int noted(int result) noexcept {
  if (group.depth > 0 && group.failed == success) group.failed = result;
  return result;
}

}  // namespace gpupool::nccl
