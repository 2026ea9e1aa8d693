// Numbers of a generator whose subsequences take turns (`random_course.h`), where to find a state is costly
// and the next word a step: one subsequence after the other is gone through.
//
// `Subsequences` of a generator has `find`, the state of a subsequence before the word of a row, and
// `to_next`, which takes a state to the same row of the next subsequence. A state has `next`, a word, and
// `uniform`.
#pragma once

#include <cstdint>
#include <cstring>

#include "libraries/operations/random.h"
#include "libraries/operations/random_course.h"
#include "libraries/operations/random_values.h"

namespace gpupool::operations {

/// The next item of a subsequence.
template <class State, class T>
void random_item(const Random& random, State& state, T* into) {
  if (random.distribution == Distribution::bits) {
    const std::uint32_t bits = state.next();
    std::memcpy(into, &bits, sizeof bits);
  } else if (!random.pairs()) {
    *into = state.template uniform<T>();
  } else {
    const T first = state.template uniform<T>(), second = state.template uniform<T>();
    random_values::normal(first, second, into);
    for (int i = 0; i < 2; ++i) into[i] = random_values::shaped(random, into[i]);
  }
}

/// The turns [first, end) of an operation.
template <class Subsequences, class T>
class RandomTurns {
 public:
  RandomTurns(const Random& random, std::uint64_t first, std::uint64_t end, T* output)
      : random_(random),
        course_(random),
        subsequences_(course_.turns_of_cycle()),
        first_(first),
        end_(end),
        output_(output) {}

  void write() const {
    if (first_ >= end_) return;
    const std::uint64_t from = first_ % subsequences_, to = (end_ - 1) % subsequences_ + 1;
    if (end_ - first_ >= subsequences_) {
      some(0, subsequences_);
    } else if (from < to) {
      some(from, to);
    } else {
      some(from, subsequences_);
      some(0, to);
    }
  }

 private:
  using State = decltype(Subsequences::find(0, 0, 0));

  /// The subsequences [first, end).
  void some(std::uint64_t first, std::uint64_t end) const {
    const std::uint64_t cycle = first_ / subsequences_;
    State state = Subsequences::find(random_.seed, first, course_.row_in(cycle));
    for (std::uint64_t number = first; number < end; ++number) {
      one(number, state, cycle);
      Subsequences::to_next(state);
    }
  }
  /// A subsequence from `cycle` on, where it is in `state`.
  void one(std::uint64_t number, State state, std::uint64_t cycle) const {
    std::uint64_t row = course_.row_in(cycle);
    for (std::uint64_t turn = cycle * subsequences_ + number; turn < end_; turn += subsequences_, ++cycle) {
      for (; row < course_.row_in(cycle); ++row) state.next();
      if (turn < first_) continue;
      random_item(random_, state, output_ + (turn - course_.first_turn()) * course_.numbers_of_item());
      row += course_.rows_of_item();
    }
  }

  const Random& random_;
  RandomCourse course_;
  std::uint64_t subsequences_;
  std::uint64_t first_, end_;
  T* output_;
};

/// The numbers [first, end) of an operation, both even where they come in pairs, to `output` + `first`.
template <class Subsequences, class T>
void generate_by_turns(const Random& random, std::uint64_t first, std::uint64_t end, T* output) {
  const RandomCourse course(random);
  const std::uint64_t numbers = course.numbers_of_item();
  RandomTurns<Subsequences, T>(random, course.first_turn() + first / numbers,
                               course.first_turn() + end / numbers, output)
      .write();
}

}  // namespace gpupool::operations
