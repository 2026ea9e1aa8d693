// What graphs of attention do element by element: scale, bias, masks, softmax in pieces, dropout.
#include <algorithm>
#include <utility>

#include "libraries/cudnn/attention_graph.h"

namespace gpupool::cudnn {
namespace {

using operations::Attention;

/// cudnnPointwiseMode_t.
enum Mode : int {
  mode_add = 0,
  mode_multiply = 1,
  mode_divide = 6,
  mode_subtract = 9,
  mode_exp = 13,
  mode_log = 15,
  mode_identity = 21,
  mode_greater = 302,
  mode_greater_equal = 303,
  mode_less = 304,
  mode_less_equal = 305,
  mode_and = 400,
  mode_index = 501,
  mode_select = 601,
};

bool add_once(std::vector<Given>& list, const Given& given) {
  if (std::find(list.begin(), list.end(), given) == list.end()) list.push_back(given);
  return given.by_value && given.elements == 1;
}

}  // namespace

int AttentionGraph::pointwise(const Content& operation) {
  const Content *how = operation.child(operation_pointwise), *x = operation.child(operation_pointwise_x),
                *b = operation.child(operation_pointwise_b), *y = operation.child(operation_pointwise_y);
  if (how == nullptr || x == nullptr || y == nullptr) return other(operation, "an operand is missing");
  if (operation.real(operation_pointwise_alpha1, 1) != 1 ||
      operation.real(operation_pointwise_alpha2, 1) != 1)
    return other(operation, "factors of its operands");
  const int mode = how->one<int>(pointwise_mode, -1);
  if (b == nullptr) {
    const Meaning from = value(*x).meaning;
    switch (mode) {
      case mode_exp:
        if (from == Meaning::scores && program_.id_of(&Attention::statistics))
          return make(operation, *y, Meaning::weights);
        return from == Meaning::shifted ? make(operation, *y, Meaning::exponentials) : other(operation);
      case mode_log:
        return from == Meaning::sum ? make(operation, *y, Meaning::logarithm) : other(operation);
      case mode_identity:
        if (from != Meaning::queries_gradient) return other(operation);
        std::erase_if(program_.places,
                      [](const auto& place) { return place.role == &Attention::q_gradient; });
        return put(operation, *y, &Attention::q_gradient, Meaning::gradient);
      case mode_index: {
        const auto axis = how->one<std::int64_t>(pointwise_axis, -1);
        if (from != Meaning::scores || (axis != 2 && axis != 3)) return other(operation);
        AttentionValue made;
        made.meaning = Meaning::index;
        (axis == 2 ? made.index.rows : made.index.columns) = 1;
        return make(operation, *y, std::move(made));
      }
      default:
        return other(operation);
    }
  }
  switch (mode) {
    case mode_add:
      return add(operation, *x, *b, 1, *y);
    case mode_subtract:
      return add(operation, *x, *b, -1, *y);
    case mode_multiply:
      return multiply(operation, *x, *b, *y);
    case mode_divide:
      if (!is(x, Meaning::exponentials) || !is(b, Meaning::sum)) return other(operation);
      return make(operation, *y, Meaning::weights);
    case mode_greater:
    case mode_greater_equal:
    case mode_less:
    case mode_less_equal:
      return compare(operation, *x, *b, mode, *y);
    case mode_and: {
      if (!is(x, Meaning::conditions) || !is(b, Meaning::conditions)) return other(operation);
      AttentionValue made = value(*x);
      for (const IndexCondition& condition : value(*b).conditions) made.conditions.push_back(condition);
      return make(operation, *y, std::move(made));
    }
    case mode_select:
      return select(operation, *x, *b, *y);
    default:
      return other(operation);
  }
}

int AttentionGraph::multiply(const Content& operation, const Content& x, const Content& b, const Content& y) {
  const AttentionValue &one = value(x), &two = value(b);
  if (one.meaning == Meaning::given && two.meaning == Meaning::given && do_ && o_) {
    const bool first = tensor_id(x) == *do_ && tensor_id(b) == *o_;
    if (!first && (tensor_id(x) != *o_ || tensor_id(b) != *do_)) return other(operation);
    if (const int bad = place(operation, first ? &x : &b, &Attention::o_gradient); bad != success) return bad;
    if (const int bad = place(operation, first ? &b : &x, &Attention::o); bad != success) return bad;
    return make(operation, y, Meaning::products);
  }
  if (two.meaning == Meaning::given) return multiply_number(operation, one, given_of(b), y);
  if (one.meaning == Meaning::given) return multiply_number(operation, two, given_of(x), y);
  const bool random = one.meaning == Meaning::random || two.meaning == Meaning::random;
  const AttentionValue& kept = one.meaning == Meaning::random ? two : one;
  if (random && (kept.meaning == Meaning::weights || kept.meaning == Meaning::weights_gradient) &&
      !kept.masked) {
    AttentionValue made = kept;
    made.masked = true;
    return make(operation, y, std::move(made));
  }
  const AttentionValue& gradient = one.meaning == Meaning::balanced_gradient ? one : two;
  const AttentionValue& weights = one.meaning == Meaning::balanced_gradient ? two : one;
  if (gradient.meaning == Meaning::balanced_gradient && weights.meaning == Meaning::weights &&
      !weights.masked && !weights.scaled && !weights.turned) {
    AttentionValue made;
    made.meaning = Meaning::scores_gradient;
    made.masked = drops();  // until it is divided by what is kept
    made.scaled = !made.masked && !program_.scale;
    return make(operation, y, std::move(made));
  }
  return other(operation);
}

int AttentionGraph::multiply_number(const Content& operation, const AttentionValue& x, const Given& factor,
                                    const Content& y) {
  if (factor.elements != 1) return other(operation, "a factor that is no number");
  AttentionValue made = x;
  switch (x.meaning) {
    case Meaning::scores:
      if (program_.scale || program_.id_of(&Attention::bias)) return other(operation, "a second scale");
      program_.scale = factor;
      return make(operation, y, std::move(made));
    case Meaning::weights:
      if (x.scaled || !drops() || !add_once(program_.kept, factor)) return other(operation);
      made.scaled = true;
      return make(operation, y, std::move(made));
    case Meaning::weights_gradient:
      // Where nothing is left out, the frontend of PyTorch 2.6 multiplies by 1 in the place of the mask.
      if (drops() || !add_once(program_.kept_inverses, factor)) return other(operation);
      return make(operation, y, std::move(made));
    case Meaning::row_sums:
      if (!add_once(program_.kept_inverses, factor)) return other(operation);
      // The program may have memory for these sums between two kernels: here they never lie there.
      values_[tensor_id(y)].meaning = Meaning::balance;
      return success;
    case Meaning::scores_gradient:
      if (x.masked) {
        if (!add_once(program_.kept, factor)) return other(operation);
        made.masked = false;
        made.scaled = !program_.scale;
      } else {
        if (x.scaled || !program_.scale || !(*program_.scale == factor)) return other(operation);
        made.scaled = true;
      }
      return make(operation, y, std::move(made));
    default:
      return other(operation);
  }
}

int AttentionGraph::add(const Content& operation, const Content& x, const Content& b, int sign,
                        const Content& y) {
  const AttentionValue &one = value(x), &two = value(b);
  if (one.meaning == Meaning::index) {
    AttentionValue made = one;
    IndexTerm added;
    if (two.meaning == Meaning::index) {
      added = two.index;
    } else if (two.meaning == Meaning::given) {
      added.numbers.push_back({given_of(b), 1});
    } else {
      return other(operation);
    }
    made.index = sign < 0 ? one.index.less(added) : one.index.less(IndexTerm{}.less(added));
    return make(operation, y, std::move(made));
  }
  if (sign < 0) {
    if (one.meaning == Meaning::scores && two.meaning == Meaning::most)
      return make(operation, y, Meaning::shifted);
    if (one.meaning == Meaning::scores && two.meaning == Meaning::given && program_.operation.backward != 0 &&
        !program_.id_of(&Attention::statistics)) {
      if (const int bad = place(operation, &b, &Attention::statistics); bad != success) return bad;
      // Masks may still follow: they are the same before and behind it.
      return make(operation, y, Meaning::scores);
    }
    if (one.meaning == Meaning::weights_gradient && one.masked == drops() && two.meaning == Meaning::balance)
      return make(operation, y, Meaning::balanced_gradient);
    return other(operation);
  }
  const bool sum_of_statistics = (one.meaning == Meaning::most && two.meaning == Meaning::logarithm) ||
                                 (two.meaning == Meaning::most && one.meaning == Meaning::logarithm);
  if (sum_of_statistics) {
    if (y.one<std::uint8_t>(tensor_virtual, 0) != 0) return make(operation, y, Meaning::statistics);
    return put(operation, y, &Attention::statistics, Meaning::statistics);
  }
  const bool bias_last = one.meaning == Meaning::scores && two.meaning == Meaning::given;
  if ((!bias_last && (one.meaning != Meaning::given || two.meaning != Meaning::scores)) ||
      program_.id_of(&Attention::bias))
    return other(operation, "more is added to scores than one bias");
  if (const int bad = place(operation, bias_last ? &b : &x, &Attention::bias); bad != success) return bad;
  return make(operation, y, Meaning::scores);
}

int AttentionGraph::compare(const Content& operation, const Content& x, const Content& b, int mode,
                            const Content& y) {
  const auto term_of = [&](const Content& tensor, IndexTerm& term) {
    const AttentionValue& found = value(tensor);
    if (found.meaning == Meaning::index) {
      term = found.index;
    } else if (found.meaning == Meaning::given) {
      term.numbers.push_back({given_of(tensor), 1});
    } else {
      return false;
    }
    return true;
  };
  IndexTerm one, two;
  if (!term_of(x, one) || !term_of(b, two)) return other(operation);
  const bool greater = mode == mode_greater || mode == mode_greater_equal;
  AttentionValue made;
  made.meaning = Meaning::conditions;
  made.conditions.push_back(
      {greater ? one.less(two) : two.less(one), mode == mode_greater || mode == mode_less});
  return make(operation, y, std::move(made));
}

int AttentionGraph::select(const Content& operation, const Content& x, const Content& b, const Content& y) {
  const Content* const which = operation.child(operation_pointwise_t);
  if (!is(&x, Meaning::scores) || !is(&b, Meaning::given) || !is(which, Meaning::conditions))
    return other(operation);
  if (!add_once(program_.fills, given_of(b)))
    return other(operation, "a mask that does not fill with one number");
  for (const IndexCondition& condition : value(*which).conditions) {
    if (const int bad = apply(operation, condition); bad != success) return bad;
  }
  return make(operation, y, Meaning::scores);
}

int AttentionGraph::band(const Content& operation) {
  const Content *x = operation.child(band_x), *fill = operation.child(band_fill),
                *y = operation.child(band_y), *left = operation.child(band_left),
                *right = operation.child(band_right), *q = operation.child(band_q_lengths),
                *k = operation.child(band_k_lengths);
  if (!is(x, Meaning::scores) || fill == nullptr || y == nullptr || (left != nullptr && right != nullptr))
    return other(operation);
  for (const auto& [name, attribute] : operation.attributes) {
    if (name > band_comparison) return other(operation, "sums of lengths are not carried");
  }
  if (!add_once(program_.fills, given_of(*fill)))
    return other(operation, "a mask that does not fill with one number");
  const int mode = operation.one<int>(band_comparison, -1);
  if (mode != mode_greater && mode != mode_greater_equal) return other(operation);
  IndexCondition condition;
  condition.strict = mode == mode_greater;
  IndexTerm& term = condition.term;
  const std::int64_t side = left != nullptr ? -1 : 1;  // row + … >= column, or column + … > row
  term.rows = static_cast<int>(side);
  term.columns = static_cast<int>(-side);
  if (left != nullptr) term.numbers.push_back({given_of(*left), 1});
  if (right != nullptr) term.numbers.push_back({given_of(*right), 1});
  if (k != nullptr) term.numbers.push_back({given_of(*k), side});
  if (q != nullptr) term.numbers.push_back({given_of(*q), -side});
  if (const int bad = apply(operation, condition); bad != success) return bad;
  return make(operation, *y, Meaning::scores);
}

int AttentionGraph::apply(const Content& operation, const IndexCondition& condition) {
  const IndexTerm& term = condition.term;
  const auto length = [&](std::optional<Given>& into) -> int {
    if (!condition.strict || term.numbers.size() != 1 || term.numbers[0].sign != 1 ||
        term.numbers[0].number.by_value)
      return other(operation, "a comparison that is no length of a sequence");
    if (into && !(*into == term.numbers[0].number)) return other(operation, "a second length of a sequence");
    into = term.numbers[0].number;
    program_.operation.pads = 1;
    return success;
  };
  if (term.rows == -1 && term.columns == 0) return length(program_.q_lengths);
  if (term.rows == 0 && term.columns == -1) return length(program_.k_lengths);
  const bool right = term.rows == 1 && term.columns == -1;
  if (!right && (term.rows != -1 || term.columns != 1)) return other(operation, "a mask that is no band");
  operations::AttentionBound& bound = right ? program_.operation.right : program_.operation.left;
  if (bound.set != 0) return other(operation, "a second bound on the same side");
  bound.set = 1;
  // row + right >= column, and column + left > row.
  bound.shift = right ? (condition.strict ? -1 : 0) : (condition.strict ? 0 : 1);
  int of_keys = 0, of_queries = 0;
  for (const AddedNumber& added : term.numbers) {
    if (added.number.by_value) {
      (right ? program_.right : program_.left).push_back(added);
    } else if ((added.sign > 0) == right) {
      if (program_.k_lengths && !(*program_.k_lengths == added.number)) return other(operation);
      program_.k_lengths = added.number;
      ++of_keys;
    } else {
      if (program_.q_lengths && !(*program_.q_lengths == added.number)) return other(operation);
      program_.q_lengths = added.number;
      ++of_queries;
    }
  }
  if (of_keys != of_queries || of_keys > 1) return other(operation, "a mask that is no band");
  bound.from_end = static_cast<operations::Flag>(of_keys);
  return success;
}

}  // namespace gpupool::cudnn
