// Execution of a plan: the operation of its graph, with the addresses of a variant pack.
#include <algorithm>
#include <optional>

#include "libraries/cudnn/attention.h"
#include "libraries/cudnn/backend.h"
#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"

using namespace gpupool::cudnn;

namespace {

/// The engine of a finalised plan; null: it is none.
const Content* engine_of_plan(const Backend* plan) {
  if (plan == nullptr || plan->content->kind != kind_plan || !plan->content->finalized) return nullptr;
  return plan->content->child(plan_config)->child(config_engine);
}

/// How an engine computes a convolution: cudnnMathType_t.
std::uint8_t math_of(const Content& engine, const Program& program) {
  const auto index = engine.one<std::int64_t>(engine_index, 0);
  if (program.engines() == 1) return Convolution::tensor_cores;
  return program.takes_fewer_digits(index) ? Convolution::any_math : Convolution::no_tensor_cores;
}

bool is_pack(const Backend* pack) {
  return pack != nullptr && pack->content->kind == kind_variant_pack && pack->content->finalized;
}

/// Puts the address of the tensor with this number; false: the pack has none.
bool put_address(const Content& pack, std::int64_t id, gpupool::operations::Tensor& tensor) {
  const auto ids = pack.list<std::int64_t>(pack_unique_ids);
  const auto pointers = pack.list<std::uint64_t>(pack_pointers);
  const auto found = std::find(ids.begin(), ids.end(), id);
  if (found == ids.end()) return false;
  tensor.address = pointers[static_cast<std::size_t>(found - ids.begin())];
  return tensor.address != 0;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnBackendExecute(void* handle, void* plan, void* variant_pack) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const Content* const engine = engine_of_plan(find_backend(plan));
    const Backend* const pack = find_backend(variant_pack);
    if (found == nullptr || engine == nullptr || !is_pack(pack)) return bad_param;
    const Program& program = *engine->child(engine_graph)->program;
    if (program.attention) {
      gpupool::operations::Attention attention;
      const int bad = complete(*program.attention, *pack->content, attention);
      return bad != success ? bad : post(*found, attention);
    }
    Convolution operation = program.convolution;
    operation.math = math_of(*engine, program);
    bool complete = put_address(*pack->content, program.input, operation.input) &&
                    put_address(*pack->content, program.filter, operation.filter) &&
                    put_address(*pack->content, program.output, operation.output);
    if (program.added) complete = complete && put_address(*pack->content, *program.added, operation.added);
    if (program.bias) complete = complete && put_address(*pack->content, *program.bias, operation.bias);
    if (!complete) return bad_param;
    return post(*found, operation);
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnGetExecutionPlanWorkspaceSize(void* handle, void* plan, void* variant_pack,
                                                              std::size_t* bytes) {
  if (find_handle(handle) == nullptr || engine_of_plan(find_backend(plan)) == nullptr ||
      !is_pack(find_backend(variant_pack)) || bytes == nullptr)
    return bad_param;
  *bytes = 0;
  return success;
}
