// The CUDA kernels of `gpupool bench softgpu`. kernels.ptx is made from this file:
//   nvcc -ptx -arch=compute_120 kernels.cu -o kernels.ptx

extern "C" __global__ void empty() {}

// Row y of the grid repeats row 0, for rounds over memory that stays in the cache.
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void reduction(int n, const float* x, float* sums) {
  __shared__ float part[256];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int width = 128; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

// One element per thread: nine barriers for 256 elements.
extern "C" __global__ void barrier(int n, const float* x, float* sums) {
  __shared__ float part[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int width = 128; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

extern "C" __global__ void mandelbrot(int width, int height, int limit, int* image) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= width) return;
  const float cx = -2.0f + 3.0f * column / width, cy = -1.0f + 2.0f * row / height;
  float x = 0.0f, y = 0.0f;
  int steps = 0;
  while (steps < limit && x * x + y * y < 4.0f) {
    const float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    ++steps;
  }
  image[row * width + column] = steps;
}

extern "C" __global__ void matmul(int n, const float* a, const float* b, float* c) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0.0f;
  for (int k = 0; k < n; k += 16) {
    tile_a[ty][tx] = a[row * n + k + tx];
    tile_b[ty][tx] = b[(k + ty) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
