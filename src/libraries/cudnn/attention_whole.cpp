// Attention that is one operation of a graph, with a graph inside of what is done to its scores.
#include "libraries/cudnn/attention_graph.h"

namespace gpupool::cudnn {

using operations::Attention;

/// Forward as one operation: with a graph of what is done to scores, where there is one.
int AttentionGraph::whole(const Content& operation, bool backward) {
  const auto known = [&](int name) {
    return backward ? name >= attention_backward_q && name <= attention_backward_do
                    : (name >= attention_q && name <= attention_scale) ||
                          (name >= attention_q_lengths && name <= attention_offset) ||
                          name == attention_rate || name == attention_unfused;
  };
  for (const auto& [name, attribute] : operation.attributes) {
    if (!known(name))
      return other(operation,
                   "pages, masks of blocks, sums of lengths and copies of random numbers are not carried");
  }
  struct Named {
    int name;
    Role role;
  };
  static constexpr Named forward_roles[] = {{attention_q, &Attention::q},
                                            {attention_k, &Attention::k},
                                            {attention_v, &Attention::v},
                                            {attention_o, &Attention::o}};
  static constexpr Named backward_roles[] = {{attention_backward_q, &Attention::q},
                                             {attention_backward_k, &Attention::k},
                                             {attention_backward_v, &Attention::v},
                                             {attention_backward_o, &Attention::o},
                                             {attention_backward_statistics, &Attention::statistics},
                                             {attention_backward_do, &Attention::o_gradient},
                                             {attention_backward_dq, &Attention::q_gradient},
                                             {attention_backward_dk, &Attention::k_gradient},
                                             {attention_backward_dv, &Attention::v_gradient}};
  const auto place_all = [&](const auto& roles) {
    for (const Named& named : roles) {
      if (const int bad = place(operation, operation.child(named.name), named.role); bad != success)
        return bad;
    }
    return static_cast<int>(success);
  };
  if (const int bad = backward ? place_all(backward_roles) : place_all(forward_roles); bad != success)
    return bad;
  program_.operation.backward = backward;
  if (const Content* const scale = operation.child(backward ? attention_backward_scale : attention_scale))
    program_.scale = given_of(*scale);
  const Content* const q = operation.child(backward ? attention_backward_q_lengths : attention_q_lengths);
  const Content* const k = operation.child(backward ? attention_backward_k_lengths : attention_k_lengths);
  if ((q == nullptr) != (k == nullptr)) return other(operation, "lengths of one kind of sequences only");
  if (q != nullptr) {
    program_.q_lengths = given_of(*q);
    program_.k_lengths = given_of(*k);
    program_.operation.pads = 1;
  }
  return backward ? success : subgraph(operation);
}

int AttentionGraph::subgraph(const Content& operation) {
  const Content* const softmax = operation.child(attention_softmax);
  const Content* statistics = operation.child(attention_statistics);
  if (softmax != nullptr) {
    for (const auto& [name, attribute] : softmax->attributes) {
      if (name > softmax_statistics) return other(*softmax, "largest scores, sums or a sink are not carried");
    }
    if (statistics == nullptr) statistics = softmax->child(softmax_statistics);
  }
  if (statistics != nullptr && statistics->one<std::uint8_t>(tensor_virtual, 0) == 0) {
    if (const int bad = place(operation, statistics, &Attention::statistics); bad != success) return bad;
  }
  program_.operation.rate = operation.real(attention_rate, 0);
  if (!(program_.operation.rate >= 0 && program_.operation.rate < 1))
    return refuse_graph(bad_param, operation, "a probability that is none");
  if (program_.operation.rate > 0) {
    const Content *seed = operation.child(attention_seed), *offset = operation.child(attention_offset);
    if (seed == nullptr || offset == nullptr)
      return other(operation, "random numbers whose seed is not given by a tensor");
    program_.seed = given_of(*seed);
    program_.offset = given_of(*offset);
  }
  const Content* const inner = operation.child(attention_subgraph);
  if (inner == nullptr) return success;
  const Attribute* const operations = inner->find(graph_operations);
  if (operations == nullptr) return bad_param;
  scores_ = operation.one<std::int64_t>(attention_subgraph_input, -1);
  values_[scores_].meaning = Meaning::scores;
  // What comes before the bias in it: a scale of its own would be a second one.
  if (const int bad = read_all(operations->descriptors); bad != success) return bad;
  const auto end = values_.find(operation.one<std::int64_t>(attention_subgraph_output, -1));
  if (end == values_.end() || end->second.meaning != Meaning::scores || end->first != scores_)
    return other(operation, "its own graph makes no scores");
  return success;
}

}  // namespace gpupool::cudnn
