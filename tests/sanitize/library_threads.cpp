// library_threads LIBRARIES ROUNDS: four threads with four streams each call cuBLAS, cuDNN, cuFFT and cuRAND,
// launch a kernel between them and look at every number. LIBRARIES is the folder that has them; the driver is
// the loader's. Prints "ok".
//
// Each thread has handles of its own and moves them from stream to stream, as NVIDIA's libraries want it. One
// handle of cuBLAS is shared by all, which cuBLAS allows while nobody sets it.
#include <dlfcn.h>

#include <array>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int threads = 4, streams = 4, side = 16, elements = side * side;
constexpr const char* add_one = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 at)
{
    .reg .b32 %r<5>; .reg .f32 %f<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [at];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3; mad.wide.u32 %rd2, %r4, 4, %rd1;
    ld.global.f32 %f1, [%rd2]; add.f32 %f1, %f1, 0f3F800000; st.global.f32 [%rd2], %f1;
    ret;
}
)";

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(1);
}

class Library {
 public:
  explicit Library(const std::string& path) : path_(path), opened_(dlopen(path.c_str(), RTLD_NOW)) {
    if (opened_ == nullptr) fail(dlerror());
  }
  // The arguments must have exactly the types of the function's parameters.
  template <class... A>
  void call(const char* name, A... arguments) const {
    void* const found = dlsym(opened_, name);
    if (found == nullptr) fail(path_ + " lacks " + name);
    const int bad = reinterpret_cast<int (*)(A...)>(found)(arguments...);
    if (bad != 0) fail(name + (": " + std::to_string(bad)));
  }

 private:
  std::string path_;
  void* opened_;
};

using Address = std::uint64_t;

struct Libraries {
  explicit Libraries(const std::string& folder)
      : driver("libcuda.so.1"),
        blas(folder + "/libcublas.so.13"),
        dnn(folder + "/libcudnn.so.9"),
        fft(folder + "/libcufft.so.12"),
        rand(folder + "/libcurand.so.10") {}
  Library driver, blas, dnn, fft, rand;
};

float* at(Address address) {
  return reinterpret_cast<float*>(address);
}

void expect(float value, float expected, const char* what) {
  if (std::fabs(value - expected) > 1e-4F * std::fabs(expected))
    fail(what + (": " + std::to_string(value) + " in place of ") + std::to_string(expected));
}

// What one stream of a thread has.
struct Lane {
  Lane(const Libraries& all) : all_(all) {
    all.driver.call("cuStreamCreate", &stream, 1U);
    all.driver.call("cuEventCreate", &done, 2U);
    for (Address* const each : {&left, &right, &product, &spectrum, &numbers})
      all.driver.call("cuMemAlloc_v2", each, std::size_t{elements} * sizeof(float));
    // The product and the random numbers, as they come back.
    all.driver.call("cuMemHostAlloc", &host, std::size_t{2} * elements * sizeof(float), 0U);
    all.fft.call("cufftPlan1d", &plan, elements / 2, 0x29, 1);
    all.fft.call("cufftSetStream", plan, stream);
  }
  ~Lane() {
    all_.fft.call("cufftDestroy", plan);
    all_.driver.call("cuMemFreeHost", static_cast<void*>(host));
    for (const Address each : {left, right, product, spectrum, numbers})
      all_.driver.call("cuMemFree_v2", each);
    all_.driver.call("cuEventDestroy_v2", done);
    all_.driver.call("cuStreamDestroy_v2", stream);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void *stream = nullptr, *done = nullptr;
  Address left = 0, right = 0, product = 0, spectrum = 0, numbers = 0;
  float* host = nullptr;
  int plan = 0;

 private:
  const Libraries& all_;
};

// A thread's handles: made anew every few rounds.
struct Handles {
  explicit Handles(const Libraries& all) : all_(all) {
    all.blas.call("cublasCreate_v2", &blas);
    all.dnn.call("cudnnCreate", &dnn);
    all.dnn.call("cudnnCreateTensorDescriptor", &tensor);
    all.dnn.call("cudnnSetTensor4dDescriptor", tensor, 0, 0, 1, 1, side, side);
    all.dnn.call("cudnnCreateActivationDescriptor", &activation);
    constexpr int relu = 1;
    all.dnn.call("cudnnSetActivationDescriptor", activation, relu, 0, 0.0);
    all.rand.call("curandCreateGenerator", &generator, 100);
    all.rand.call("curandSetPseudoRandomGeneratorSeed", generator, 7ULL);
  }
  ~Handles() {
    all_.rand.call("curandDestroyGenerator", generator);
    all_.dnn.call("cudnnDestroyActivationDescriptor", activation);
    all_.dnn.call("cudnnDestroyTensorDescriptor", tensor);
    all_.dnn.call("cudnnDestroy", dnn);
    all_.blas.call("cublasDestroy_v2", blas);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  void move_to(void* stream) const {
    all_.blas.call("cublasSetStream_v2", blas, stream);
    all_.dnn.call("cudnnSetStream", dnn, stream);
    all_.rand.call("curandSetStream", generator, stream);
  }

  void *blas = nullptr, *dnn = nullptr, *tensor = nullptr, *activation = nullptr, *generator = nullptr;

 private:
  const Libraries& all_;
};

void multiply(const Library& blas, void* handle, Address left, Address right, Address product) {
  const float one = 1, zero = 0;
  blas.call("cublasSgemm_v2", handle, 0, 0, side, side, side, &one, static_cast<const float*>(at(left)), side,
            static_cast<const float*>(at(right)), side, &zero, at(product), side);
}

float dot(const Library& blas, void* handle, Address left, Address right) {
  float result = 0;
  blas.call("cublasSdot_v2", handle, elements, static_cast<const float*>(at(left)), 1,
            static_cast<const float*>(at(right)), 1, &result);
  return result;
}

// Without a call of the driver, whose locks would order what the threads do.
void make_plans(const Library& fft) {
  for (int n = 0; n < 50; ++n) {
    int plan = 0;
    fft.call("cufftCreate", &plan);
    fft.call("cufftDestroy", plan);
  }
}

void fill(const Library& driver, Address address, float value, void* stream) {
  driver.call("cuMemsetD32Async", address, __builtin_bit_cast(unsigned, value), std::size_t{elements},
              stream);
}

// Posts a stream's work of a round, after that of another stream: `value` is in every element of the left
// matrix.
void post(const Libraries& all, const Handles& handles, const Lane& lane, void* before, void* kernel,
          float value) {
  const float one = 1, zero = 0, back = 2.0F / elements;
  handles.move_to(lane.stream);
  if (before != nullptr) all.driver.call("cuStreamWaitEvent", lane.stream, before, 0U);
  fill(all.driver, lane.left, value, lane.stream);
  fill(all.driver, lane.right, 1, lane.stream);
  multiply(all.blas, handles.blas, lane.left, lane.right, lane.product);  // side * value
  all.dnn.call("cudnnAddTensor", handles.dnn, static_cast<const void*>(&one),
               static_cast<const void*>(handles.tensor), static_cast<const void*>(at(lane.right)),
               static_cast<const void*>(&one), static_cast<const void*>(handles.tensor),
               static_cast<void*>(at(lane.product)));
  Address address = lane.product;
  void* parameters[] = {&address};
  all.driver.call("cuLaunchKernel", kernel, 4U, 1U, 1U, elements / 4U, 1U, 1U, 0U, lane.stream,
                  static_cast<void**>(parameters), static_cast<void**>(nullptr));
  // There and back: the elements are halves of complex numbers.
  all.fft.call("cufftExecC2C", lane.plan, static_cast<void*>(at(lane.product)),
               static_cast<void*>(at(lane.spectrum)), -1);
  all.fft.call("cufftExecC2C", lane.plan, static_cast<void*>(at(lane.spectrum)),
               static_cast<void*>(at(lane.product)), 1);
  Address passing = 0;
  all.driver.call("cuMemAllocAsync", &passing, std::size_t{elements} * sizeof(float), lane.stream);
  all.dnn.call("cudnnActivationForward", handles.dnn, static_cast<const void*>(handles.activation),
               static_cast<const void*>(&back), static_cast<const void*>(handles.tensor),
               static_cast<const void*>(at(lane.product)), static_cast<const void*>(&zero),
               static_cast<const void*>(handles.tensor), static_cast<void*>(at(passing)));
  all.driver.call("cuMemcpyDtoHAsync_v2", static_cast<void*>(lane.host), passing,
                  std::size_t{elements} * sizeof(float), lane.stream);
  all.driver.call("cuMemFreeAsync", passing, lane.stream);
  all.rand.call("curandGenerateUniform", handles.generator, at(lane.numbers), std::size_t{elements});
  all.driver.call("cuMemcpyDtoHAsync_v2", static_cast<void*>(lane.host + elements), lane.numbers,
                  std::size_t{elements} * sizeof(float), lane.stream);
  all.driver.call("cuEventRecord", lane.done, lane.stream);
}

void look(const Lane& lane, float value) {
  for (int n = 0; n < elements; ++n) {
    expect(lane.host[n], side * value + 2, "a stream's product");
    const float number = lane.host[elements + n];
    if (!(number > 0 && number <= 1)) fail("a random number: " + std::to_string(number));
  }
}

void work(const Libraries& all, void* context, void* kernel, void* shared, std::barrier<>& start, int thread,
          int rounds) {
  all.driver.call("cuCtxSetCurrent", context);
  constexpr int rounds_of_handles = 4;
  for (int first = 0; first < rounds; first += rounds_of_handles) {
    start.arrive_and_wait();  // handles and first calls of all threads at the same time
    const Handles handles(all);
    const std::array<Lane, streams> lanes{Lane(all), Lane(all), Lane(all), Lane(all)};
    for (int round = first; round < rounds && round < first + rounds_of_handles; ++round) {
      const auto value_of = [&](int lane) {
        return static_cast<float>(1 + round + 10 * lane + 100 * thread);
      };
      make_plans(all.fft);
      void* before = nullptr;
      for (int n = 0; n < streams; ++n) {
        post(all, handles, lanes[n], n % 2 == 0 ? nullptr : before, kernel, value_of(n));
        before = lanes[n].done;
      }
      // The thread's handle is in the last stream: this waits for it.
      expect(dot(all.blas, handles.blas, lanes[streams - 1].left, lanes[streams - 1].right),
             elements * value_of(streams - 1), "a product of vectors");
      for (int n = 0; n < streams; ++n) {
        if (round % 2 == 0)
          all.driver.call("cuStreamSynchronize", lanes[n].stream);
        else
          all.driver.call("cuEventSynchronize", lanes[n].done);
        look(lanes[n], value_of(n));
      }
      expect(dot(all.blas, shared, lanes[0].left, lanes[0].right), elements * value_of(0),
             "the shared handle's");
      multiply(all.blas, shared, lanes[1].left, lanes[1].right, lanes[1].product);
      all.driver.call("cuMemcpyDtoH_v2", static_cast<void*>(lanes[1].host), lanes[1].product,
                      std::size_t{elements} * sizeof(float));
      expect(lanes[1].host[elements - 1], side * value_of(1), "the shared handle's matrix");
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const Libraries all(arguments[1]);
  const int rounds = std::atoi(arguments[2]);
  void *context = nullptr, *module = nullptr, *kernel = nullptr, *shared = nullptr;
  all.driver.call("cuInit", 0U);
  all.driver.call("cuDevicePrimaryCtxRetain", &context, 0);
  all.driver.call("cuCtxSetCurrent", context);
  all.driver.call("cuModuleLoadData", &module, static_cast<const void*>(add_one));
  all.driver.call("cuModuleGetFunction", &kernel, module, "add_one");
  all.blas.call("cublasCreate_v2", &shared);
  std::barrier start(threads);
  std::vector<std::thread> working;
  for (int thread = 0; thread < threads; ++thread)
    working.emplace_back([&, thread] { work(all, context, kernel, shared, start, thread, rounds); });
  for (std::thread& each : working) each.join();
  all.blas.call("cublasDestroy_v2", shared);
  std::puts("ok");
  return 0;
}
