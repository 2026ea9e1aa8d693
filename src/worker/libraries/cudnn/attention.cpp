// Attention by cuDNN: a graph of matrix products, masks and a softmax, in the form in which programs write
// it, which the library recognises as one. Plans are kept: making one may compile code.
#include "libraries/operations/attention.h"

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <limits>

#include "worker/libraries/cudnn/graph.h"

namespace gpupool::worker {
namespace {

using operations::Attention;
using operations::AttentionBound;
using operations::AttentionNumber;
using operations::Element;
using operations::Tensor;

/// The numbers of tensors in a graph.
enum Id : std::int64_t {
  id_q = 1,
  id_k,
  id_v,
  id_o,
  id_statistics,
  id_bias,
  id_o_gradient,
  id_q_gradient,
  id_k_gradient,
  id_v_gradient,
  id_bias_gradient,
  id_q_lengths,
  id_k_lengths,
  id_scale,
  id_seed,
  id_offset,
  // Numbers in host memory.
  id_masked,
  id_right,
  id_left,
  id_larger,
  id_kept,
  id_sum,  // of q_gradient
  id_balance,
};

struct Role {
  std::int64_t id;
  Tensor Attention::* tensor;
};
constexpr Role roles[] = {{id_q, &Attention::q},
                          {id_k, &Attention::k},
                          {id_v, &Attention::v},
                          {id_o, &Attention::o},
                          {id_statistics, &Attention::statistics},
                          {id_bias, &Attention::bias},
                          {id_o_gradient, &Attention::o_gradient},
                          {id_q_gradient, &Attention::q_gradient},
                          {id_k_gradient, &Attention::k_gradient},
                          {id_v_gradient, &Attention::v_gradient},
                          {id_bias_gradient, &Attention::bias_gradient}};

/// How far the diagonal that a bound counts from is moved where no lengths say where sequences end.
std::int64_t shift_of(const Attention& of, const AttentionBound& bound, bool right) {
  const bool to_end = bound.from_end != 0 && of.q_lengths.address == 0;
  const std::int64_t more = to_end ? of.columns() - of.rows() : 0;
  return right ? bound.shift + more : bound.shift - more;
}

class AttentionCall {
 public:
  AttentionCall(const Execution& x, const Attention& of) : x_(x), of_(of), dnn_(x) {}

  CUresult run() {
    if (of_.rate > 0 && (of_.seed.on_device != of_.offset.on_device || of_.seed.wide != of_.offset.wide))
      return CUDA_ERROR_NOT_SUPPORTED;
    const DnnPlan* plan = found(Workspace::most_plan_bytes);
    if (plan == nullptr) return dnn_.result();
    // The gradients of Q are summed in single precision, beginning with zeros. Behind them is a number for
    // each row, which the library wants in memory.
    const bool sums = of_.backward != 0;
    const std::size_t of_balance = static_cast<std::size_t>(of_.statistics.elements()) * sizeof(float);
    const Workspace sum(x_, sums ? bytes_of_sum() + of_balance : 0);
    if (!sum.there()) return result_of_cudnn(Dnn::no_memory);
    const auto sum_at = reinterpret_cast<std::uint64_t>(sum.address());
    if (sums) {
      const CUresult result = x_.libraries.api.cuMemsetD8Async_(sum_at, 0, bytes_of_sum(), x_.stream);
      if (result != CUDA_SUCCESS) return result;
    }
    const auto places = addresses(sum_at);
    if (execute_plan(x_, dnn_, *plan, places)) return dnn_.result();
    // Without so much memory, one that does with less.
    if (plan->workspace <= Workspace::most_bytes) return result_of_cudnn(Dnn::no_memory);
    plan = found(Workspace::most_bytes);
    if (plan != nullptr && !execute_plan(x_, dnn_, *plan, places)) dnn_.fail(Dnn::no_memory);
    return dnn_.result();
  }

 private:
  [[nodiscard]] std::size_t bytes_of_sum() const {
    constexpr std::size_t aligned = 256;
    return (static_cast<std::size_t>(of_.q.elements()) * sizeof(float) + aligned - 1) / aligned * aligned;
  }
  /// Products take two matrices of one type: what is computed in between is rounded to that of Q.
  [[nodiscard]] int type() const { return data_type_of(of_.q.type); }

  const DnnPlan* found(std::size_t most_workspace) {
    const std::string key = key_of(of_, [](Attention& of) {
      // Whether it is there, and what it is a multiple of.
      for (const Role& role : roles) {
        std::uint64_t& address = (of.*role.tensor).address;
        if (address != 0) address = (address & 15) | 16;
      }
      for (auto* const lengths : {&of.q_lengths, &of.k_lengths})
        lengths->address = lengths->address != 0 ? 1 : 0;
      of.seed.value = of.offset.value = 0;
      of.scale.value = {};
    });
    const auto build = [this](DnnGraph& graph) { of_.backward != 0 ? backward(graph) : forward(graph); };
    const bool small = most_workspace == Workspace::most_bytes;
    return kept_plan(x_, dnn_, Attention::name + key + (small ? "small" : ""), build, {}, most_workspace);
  }

  /// scale · Q · Kᵀ with the bias, and nothing where a mask is.
  DnnValue scores(DnnGraph& graph, const DnnValue& q, const DnnValue& turned_k, const DnnValue& scale) {
    const DnnValue products = graph.product(q, turned_k);
    DnnValue made = graph.point(DnnGraph::multiply, products, &scale);
    if (of_.bias.address != 0) {
      const DnnValue bias = graph.tensor(id_bias, of_.bias);
      made = graph.point(DnnGraph::add, made, &bias);
    }
    const bool has_lengths = of_.q_lengths.address != 0 && of_.k_lengths.address != 0;
    DnnValue q_lengths, k_lengths, masked;
    if (has_lengths) {
      q_lengths = graph.lengths(id_q_lengths, of_.images(), of_.q_lengths.stride, of_.q_lengths.wide != 0);
      k_lengths = graph.lengths(id_k_lengths, of_.images(), of_.k_lengths.stride, of_.k_lengths.wide != 0);
    }
    if (of_.pads != 0 || of_.right.set != 0 || of_.left.set != 0)
      masked = graph.number(id_masked, DnnGraph::single, true);
    const auto inside = [&](const DnnValue& where) {
      made = graph.point(DnnGraph::select, made, &masked, &where);
    };
    if (of_.pads != 0) {
      if (!has_lengths) dnn_.fail(Dnn::not_supported);
      const DnnValue row = graph.point(DnnGraph::index, made, nullptr, nullptr, 2),
                     column = graph.point(DnnGraph::index, made, nullptr, nullptr, 3);
      const DnnValue row_counts = graph.point(DnnGraph::less, row, &q_lengths),
                     column_counts = graph.point(DnnGraph::less, column, &k_lengths);
      inside(graph.point(DnnGraph::both, row_counts, &column_counts));
    }
    const auto moved = [&](DnnGraph::Mode mode, const DnnValue& place, const DnnValue& by) {
      const DnnValue y = graph.whole_like(place);
      graph.point_into(mode, place, &by, nullptr, y, -1, DnnGraph::whole);
      return y;
    };
    if (of_.right.set != 0) {
      DnnValue row = graph.point(DnnGraph::index, made, nullptr, nullptr, 2);
      const DnnValue column = graph.point(DnnGraph::index, made, nullptr, nullptr, 3);
      if (of_.right.from_end != 0 && has_lengths)
        row = moved(DnnGraph::subtract, moved(DnnGraph::add, row, k_lengths), q_lengths);
      if (shift_of(of_, of_.right, true) != 0)
        row = moved(DnnGraph::add, row, graph.number(id_right, DnnGraph::whole, true));
      inside(graph.point(DnnGraph::greater_equal, row, &column));
    }
    if (of_.left.set != 0) {
      const DnnValue row = graph.point(DnnGraph::index, made, nullptr, nullptr, 2);
      DnnValue column = graph.point(DnnGraph::index, made, nullptr, nullptr, 3);
      column = moved(DnnGraph::add, column, graph.number(id_left, DnnGraph::whole, true));
      if (of_.left.from_end != 0 && has_lengths)
        column = moved(DnnGraph::add, moved(DnnGraph::subtract, column, k_lengths), q_lengths);
      inside(graph.point(DnnGraph::greater, column, &row));
    }
    return made;
  }

  DnnValue scale(DnnGraph& graph) {
    const bool on_device = of_.scale.on_device != 0;
    const int type = on_device ? data_type_of(of_.scale.type) : DnnGraph::single;
    if (type < 0) dnn_.fail(Dnn::not_supported);
    return graph.number(id_scale, type, !on_device);
  }

  DnnValue kept(DnnGraph& graph, const DnnValue& like) {
    const auto given = [&](std::int64_t id, const AttentionNumber& number) {
      return graph.number(id, number.wide != 0 ? DnnGraph::whole_64 : DnnGraph::whole, number.on_device == 0);
    };
    const DnnValue seed = given(id_seed, of_.seed), offset = given(id_offset, of_.offset);
    return graph.random(1 - of_.rate, seed, offset, like.sizes);
  }

  void forward(DnnGraph& graph) {
    const DnnValue q = graph.tensor(id_q, of_.q), k = graph.tensor(id_k, of_.k, true),
                   v = graph.tensor(id_v, of_.v), o = graph.tensor(id_o, of_.o), factor = scale(graph);
    const DnnValue masked = scores(graph, q, k, factor);
    const DnnValue most = graph.reduce(DnnGraph::maximum, masked);
    const DnnValue below = graph.point(DnnGraph::subtract, masked, &most);
    const DnnValue exponentials = graph.point(DnnGraph::exp, below);
    const DnnValue total = graph.reduce(DnnGraph::sum, exponentials);
    if (of_.statistics.address != 0) {
      const DnnValue logarithm = graph.point(DnnGraph::log, total);
      graph.point_into(DnnGraph::add, most, &logarithm, nullptr, graph.tensor(id_statistics, of_.statistics));
    }
    if (!of_.drops())
      return graph.product_into(graph.point_as(type(), DnnGraph::divide, exponentials, total), v, o);
    const DnnValue weights = graph.point(DnnGraph::divide, exponentials, &total);
    const DnnValue mask = kept(graph, weights), larger = graph.number(id_larger, DnnGraph::single, true);
    const DnnValue some = graph.point(DnnGraph::multiply, weights, &mask);
    graph.product_into(graph.point_as(type(), DnnGraph::multiply, some, larger), v, o);
  }

  /// a · b; where heads of Q share one of K, their sum.
  void of_heads(DnnGraph& graph, const DnnValue& a, const DnnValue& b, const DnnValue& into) {
    if (of_.group() == 1) return graph.product_into(a, b, into);
    graph.reduce_into(DnnGraph::sum, graph.product(a, b), into);
  }

  void backward(DnnGraph& graph) {
    const DnnValue q = graph.tensor(id_q, of_.q), k = graph.tensor(id_k, of_.k, true),
                   v = graph.tensor(id_v, of_.v, true), o = graph.tensor(id_o, of_.o),
                   o_gradient = graph.tensor(id_o_gradient, of_.o_gradient),
                   rows = graph.tensor(id_statistics, of_.statistics),
                   q_gradient = graph.tensor(id_q_gradient, of_.q_gradient),
                   k_gradient = graph.tensor(id_k_gradient, of_.k_gradient),
                   v_gradient = graph.tensor(id_v_gradient, of_.v_gradient), factor = scale(graph);
    const bool drops = of_.drops();
    const DnnValue products = graph.point(DnnGraph::multiply, o_gradient, &o);
    const DnnValue total = graph.reduce(DnnGraph::sum, products);
    const DnnValue share = graph.number(id_kept, DnnGraph::single, true);
    const DnnValue balance = graph.placed(id_balance, total.sizes, DnnGraph::single);
    graph.point_into(DnnGraph::multiply, total, &share, nullptr, balance);
    const DnnValue masked = scores(graph, q, k, factor);
    const DnnValue below = graph.point(DnnGraph::subtract, masked, &rows);
    const DnnValue weights = graph.point(DnnGraph::exp, below);
    DnnValue used = weights, mask, larger;
    if (drops) {
      mask = kept(graph, weights);
      larger = graph.number(id_larger, DnnGraph::single, true);
      used = graph.point(DnnGraph::multiply, used, &mask);
      used = graph.point(DnnGraph::multiply, used, &larger);
    }
    of_heads(graph, graph.turn(used, type()), o_gradient, v_gradient);
    DnnValue gradient = graph.product(o_gradient, v);
    if (drops) gradient = graph.point(DnnGraph::multiply, gradient, &mask);
    gradient = graph.point(DnnGraph::subtract, gradient, &balance);
    gradient = graph.point(DnnGraph::multiply, gradient, &weights);
    if (drops) gradient = graph.point(DnnGraph::multiply, gradient, &larger);
    if (of_.bias_gradient.address != 0)
      graph.reduce_into(DnnGraph::sum, gradient, graph.tensor(id_bias_gradient, of_.bias_gradient));
    gradient = graph.point(DnnGraph::multiply, gradient, &factor);
    of_heads(graph, graph.turn(gradient, type()), q, k_gradient);
    const DnnValue added = graph.placed(id_sum, q.sizes, DnnGraph::single);
    graph.product_into(gradient, graph.turn(k, DnnGraph::single), added);
    graph.point_into(DnnGraph::identity, added, nullptr, nullptr, q_gradient);
  }

  /// Numbers in host memory live as long as this call.
  std::map<std::int64_t, std::uint64_t> addresses(std::uint64_t sum_at) {
    std::map<std::int64_t, std::uint64_t> made;
    for (const Role& role : roles) made[role.id] = (of_.*role.tensor).address;
    made[id_q_lengths] = of_.q_lengths.address;
    made[id_k_lengths] = of_.k_lengths.address;
    made[id_sum] = sum_at;
    made[id_balance] = sum_at + bytes_of_sum();
    const auto put = [&](std::int64_t id, const auto& value) {
      auto& place = numbers_.emplace_back();
      std::memcpy(place.data(), &value, sizeof value);
      made[id] = reinterpret_cast<std::uint64_t>(place.data());
    };
    put(id_masked, -std::numeric_limits<float>::infinity());
    put(id_right, static_cast<std::int32_t>(shift_of(of_, of_.right, true)));
    put(id_left, static_cast<std::int32_t>(shift_of(of_, of_.left, false)));
    put(id_larger, static_cast<float>(1 / (1 - of_.rate)));
    put(id_kept, static_cast<float>(1 - of_.rate));
    if (of_.scale.on_device != 0) {
      made[id_scale] = of_.scale.value.words[0];
    } else {
      put(id_scale, static_cast<float>(std::bit_cast<double>(of_.scale.value.words[0])));
    }
    const auto put_number = [&](std::int64_t id, const AttentionNumber& number) {
      if (number.on_device != 0) {
        made[id] = number.value;
      } else {
        put(id, number.value);  // of fewer bytes, the first ones
      }
    };
    put_number(id_seed, of_.seed);
    put_number(id_offset, of_.offset);
    return made;
  }

  const Execution& x_;
  const Attention& of_;
  Dnn dnn_;
  std::deque<std::array<std::byte, 8>> numbers_;
};

}  // namespace

CUresult run(const Execution& x, const Attention& operation) {
  return AttentionCall(x, operation).run();
}

}  // namespace gpupool::worker
