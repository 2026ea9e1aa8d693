#include "worker/conversation/call_fate.h"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace gpupool::worker;

namespace {

ArrivedCall post(Admission admission) {
  return {.admission = admission, .needs_lease = true};
}
ArrivedCall ask(Admission admission) {
  return {.admission = admission, .needs_lease = true, .is_ask = true};
}
constexpr ArrivedCall freeing{};
constexpr ArrivedCall freeing_ask{.is_ask = true};

constexpr CallSituation good{};
constexpr CallSituation no_lease{.attached = false};
constexpr CallSituation away{.memory_is_here = false, .attached = false};
constexpr CallSituation returning{.memory_is_here = false, .attached = true};

CallSituation with_something_kept(CallSituation now) {
  now.something_kept = true;
  return now;
}

}  // namespace

TEST_CASE("what needs a lease and has none: a post is kept, an ask is refused") {
  for (const CallSituation& now :
       {no_lease, away, with_something_kept(no_lease), with_something_kept(away)}) {
    for (const Admission lacking : {Admission::not_attached, Admission::past_epoch, Admission::fenced}) {
      CHECK(fate_of(post(lacking), now) == CallFate::keep);
      CHECK(fate_of(ask(lacking), now) == CallFate::refuse);
    }
  }
}

TEST_CASE("a post of an earlier lease is executed under the present one; an ask is made anew") {
  CHECK(fate_of(post(Admission::past_epoch), good) == CallFate::run);
  CHECK(fate_of(ask(Admission::past_epoch), good) == CallFate::refuse);
  // A lease that the worker hasn't heard of yet is none.
  CHECK(fate_of(post(Admission::not_attached), good) == CallFate::keep);
}

TEST_CASE("a post whose client waits for a push is not kept: there may never be a lease again") {
  ArrivedCall copy = post(Admission::not_attached);
  copy.refused_by_push = true;
  CHECK(fate_of(copy, no_lease) == CallFate::refuse);
}

TEST_CASE("while memory is away, what is freed is kept, and what must be answered waits") {
  CHECK(fate_of(freeing, away) == CallFate::keep);
  CHECK(fate_of(freeing_ask, away) == CallFate::wait);
  ArrivedCall pages = freeing;
  pages.bulk = true;
  CHECK(fate_of(pages, away) == CallFate::wait);
  CHECK(fate_of(post(Admission::ok), returning) == CallFate::wait);
  CHECK(fate_of(ask(Admission::ok), returning) == CallFate::wait);
}

TEST_CASE("nothing overtakes what is kept, but what work on the device waits for") {
  CHECK(fate_of(freeing, no_lease) == CallFate::run);
  CHECK(fate_of(freeing, with_something_kept(no_lease)) == CallFate::keep);
  CHECK(fate_of(freeing_ask, with_something_kept(no_lease)) == CallFate::wait);
  // The lease came while this was being decided.
  CHECK(fate_of(post(Admission::ok), with_something_kept(good)) == CallFate::wait);
  ArrivedCall function_done = freeing;
  function_done.ends_what_is_waited_for = true;
  CHECK(fate_of(function_done, with_something_kept(no_lease)) == CallFate::run);
  CHECK(fate_of(function_done, away) == CallFate::keep);
}
