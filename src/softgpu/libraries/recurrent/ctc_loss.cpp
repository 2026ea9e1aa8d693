// The loss of connectionist temporal classification. A part is one image: forward and backward through its
// steps.
#include "libraries/operations/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::CtcLoss;
using gpupool::operations::Impossible;

constexpr double nothing = -HUGE_VAL;  // the logarithm of 0

double add_logarithms(double one, double other) {
  if (one < other) std::swap(one, other);
  return one == nothing ? nothing : one + std::log1p(std::exp(other - one));
}

/// An image: its labels with blanks around them, and the logarithms of its letters' probabilities.
struct CtcImage {
  std::int64_t number = 0, steps = 0, letters = 0;
  std::vector<std::int32_t> states;  // their letters
  std::vector<double> logarithms;    // of each step's letters

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(states.size()); }
  [[nodiscard]] std::int32_t letter(std::int64_t state) const {
    return states[static_cast<std::size_t>(state)];
  }
  [[nodiscard]] double probability(std::int64_t step, std::int64_t state) const {
    return logarithms[static_cast<std::size_t>(step * letters + letter(state))];
  }
  /// Whether a way may leave out the blank between this state and the second one before it.
  [[nodiscard]] bool skips(std::int64_t state) const {
    return state >= 2 && letter(state) != 0 && letter(state) != letter(state - 2);
  }
};

CtcImage read_image(const CtcLoss& op, std::int64_t number, const Memory& memory) {
  const std::int64_t images = op.probabilities.sizes[1];
  const auto whole = [&](std::uint64_t address, const char* what) {
    const auto* const at = memory.at<std::int32_t>(address, static_cast<std::uint64_t>(images), what);
    return std::vector<std::int32_t>(at,
                                     at + number + 1);  // read once: the program may change them meanwhile
  };
  const auto lengths = whole(op.label_lengths, "the lengths of labels"),
             steps = whole(op.step_lengths, "the lengths of sequences");
  const auto bad = [](const char* what) { throw Failure(softgpu::Fault::illegal_instruction, what); };
  std::uint64_t first = 0;
  for (const std::int32_t length : lengths) {
    if (length < 0 || length > CtcLoss::most_labels) bad("CTC loss: a label of a length that none has");
    first += static_cast<std::uint64_t>(length);
  }
  const auto count = static_cast<std::uint64_t>(lengths.back());
  first -= count;
  CtcImage image;
  image.number = number;
  image.steps = steps.back();
  image.letters = op.probabilities.sizes[2];
  if (image.steps < 0 || image.steps > op.probabilities.sizes[0]) bad("CTC loss: more steps than there are");
  const auto* const labels =
      count == 0 ? nullptr : memory.at<std::int32_t>(op.labels, first + count, "the labels") + first;
  image.states.assign(2 * count + 1, 0);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::int32_t letter = labels[i];
    if (letter < 0 || letter >= image.letters) bad("CTC loss: a label that is no letter");
    image.states[2 * i + 1] = letter;
  }
  constexpr std::int64_t most = std::int64_t{1} << 27;
  if (image.count() * std::max<std::int64_t>(image.steps, 1) > most ||
      image.letters > most / std::max<std::int64_t>(image.steps, 1))
    throw Failure(softgpu::Fault::launch_out_of_resources, "CTC loss: more states than memory");
  return image;
}

void read_probabilities(const CtcLoss& op, CtcImage& image) {
  const Tensor& from = op.probabilities;
  image.logarithms.resize(static_cast<std::size_t>(image.steps * image.letters));
  for (std::int64_t step = 0; step < image.steps; ++step) {
    double* const row = image.logarithms.data() + step * image.letters;
    read_row(from, step * from.strides[0] + image.number * from.strides[1], from.strides[2], image.letters,
             row);
    if (op.softmax == 0) {
      std::transform(row, row + image.letters, row, [](double x) { return std::log(x); });
      continue;
    }
    const double most = *std::max_element(row, row + image.letters);
    double sum = 0;
    for (std::int64_t letter = 0; letter < image.letters; ++letter) sum += std::exp(row[letter] - most);
    const double whole = most + std::log(sum);
    for (std::int64_t letter = 0; letter < image.letters; ++letter) row[letter] -= whole;
  }
}

/// Of each step and state: the logarithm of the probability of all ways that lead there.
std::vector<double> ways_to(const CtcImage& image) {
  const std::int64_t count = image.count();
  std::vector<double> ways(static_cast<std::size_t>(image.steps * count), nothing);
  for (std::int64_t step = 0; step < image.steps; ++step) {
    double* const row = ways.data() + step * count;
    for (std::int64_t state = 0; state < count; ++state) {
      double before = step == 0 && state < 2 ? 0 : nothing;
      if (step > 0) {
        before = row[state - count];
        if (state > 0) before = add_logarithms(before, row[state - count - 1]);
        if (image.skips(state)) before = add_logarithms(before, row[state - count - 2]);
      }
      row[state] = before + image.probability(step, state);
    }
  }
  return ways;
}

/// All ways' logarithm.
double whole_of(const CtcImage& image, const std::vector<double>& ways) {
  if (image.steps == 0) return image.count() == 1 ? 0 : nothing;
  const double last = ways.back();
  return image.count() == 1 ? last : add_logarithms(last, ways[ways.size() - 2]);
}

void write_gradient(const CtcLoss& op, const CtcImage& image, const std::vector<double>& ways, double whole) {
  const Tensor& into = op.gradient;
  const bool possible = whole != nothing;
  if (!possible && op.impossible == Impossible::not_written) return;
  const double otherwise =
      op.impossible == Impossible::no_numbers ? std::numeric_limits<double>::quiet_NaN() : 0;
  const std::int64_t count = image.count();
  std::vector<double> row(static_cast<std::size_t>(image.letters));
  // Of each state: all ways that lead on from there, with the state's own probability or without it.
  std::vector<double> onward(static_cast<std::size_t>(count), nothing), next = onward;
  for (std::int64_t step = op.probabilities.sizes[0] - 1; step >= 0; --step) {
    std::fill(row.begin(), row.end(), possible || step >= image.steps ? 0 : otherwise);
    if (possible && step < image.steps) {
      const double* const logarithms = image.logarithms.data() + step * image.letters;
      for (std::int64_t letter = 0; letter < image.letters; ++letter)
        row[static_cast<std::size_t>(letter)] = std::exp(logarithms[letter]);
      for (std::int64_t state = 0; state < count; ++state) {
        const auto at = [&](std::int64_t other) { return next[static_cast<std::size_t>(other)]; };
        double after = step == image.steps - 1 && state >= count - 2 ? 0 : nothing;
        if (step < image.steps - 1) {
          after = at(state);
          if (state + 1 < count) after = add_logarithms(after, at(state + 1));
          if (state + 2 < count && image.skips(state + 2)) after = add_logarithms(after, at(state + 2));
        }
        const double through = ways[static_cast<std::size_t>(step * count + state)] + after;
        if (through != nothing)
          row[static_cast<std::size_t>(image.letter(state))] -= std::exp(through - whole);
        onward[static_cast<std::size_t>(state)] = after + image.probability(step, state);
      }
      std::swap(onward, next);
    }
    write_row(into, step * into.strides[0] + image.number * into.strides[1], into.strides[2], image.letters,
              row.data());
  }
}

}  // namespace

void run(const CtcLoss& op, const Parts& parts, const Memory& memory) {
  check_tensor(op.probabilities, memory, "the probabilities");
  if (op.gradient.address != 0) check_written(op.gradient, memory, "the gradient");
  auto* const losses =
      memory.at<float>(op.losses, static_cast<std::uint64_t>(op.probabilities.sizes[1]), "the losses");
  parts.each(op.parts(), [&](std::uint64_t part) {
    CtcImage image = read_image(op, static_cast<std::int64_t>(part), memory);
    read_probabilities(op, image);
    const std::vector<double> ways = ways_to(image);
    const double whole = whole_of(image, ways);
    losses[part] = static_cast<float>(-whole);
    if (op.gradient.address != 0) write_gradient(op, image, ways, whole);
  });
}

}  // namespace softgpu::libraries
