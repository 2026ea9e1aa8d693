#include "softgpu/driver/graph_nodes.h"

#include "softgpu/driver/context.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/error.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/launch.h"

namespace softgpu::driver {
namespace {

using Work = std::vector<std::function<void()>>;

void add_work(Work& work, const GraphExec::Step& step) {
  if (const auto* record = std::get_if<EventRecord>(&step.parameters)) {
    auto mark = std::make_shared<Completion>();
    record->event->set_mark(mark);
    work.push_back([mark] { mark->finish(); });
  } else if (const auto* wait = std::get_if<EventWait>(&step.parameters)) {
    if (auto mark = wait->event->mark()) work.push_back([mark] { mark->wait(); });
  } else if (step.run) {
    work.push_back(step.run);
  }
}

}  // namespace

Operation kernel_node(const CUDA_KERNEL_NODE_PARAMS* parameters) {
  require(parameters != nullptr);
  const auto handle = parameters->func ? parameters->func : reinterpret_cast<CUfunction>(parameters->kern);
  const LaunchShape shape{{parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
                          {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
                          parameters->sharedMemBytes,
                          false};
  return make_launch(
      prepare_launch(resolve_function(handle), shape, parameters->kernelParams, parameters->extra));
}

Operation host_node(const CUDA_HOST_NODE_PARAMS* parameters) {
  require(parameters != nullptr && parameters->fn != nullptr);
  const HostCall call{parameters->fn, parameters->userData};
  return {CU_GRAPH_NODE_TYPE_HOST, call, [call] { call.function(call.data); }};
}

Operation child_node(const std::shared_ptr<Graph>& child) {
  return {CU_GRAPH_NODE_TYPE_GRAPH, child, [child] {
            for (const GraphNode* node : child->ordered()) {
              if (node->run) node->run();
            }
          }};
}

void launch_graph(const std::shared_ptr<Stream>& stream, const GraphExec& exec) {
  Work work;
  for (const GraphExec::Step& step : exec.steps()) {
    if (step.enabled) add_work(work, step);
  }
  stream->submit([work = std::move(work)] {
    for (const auto& run : work) run();
  });
}

}  // namespace softgpu::driver
