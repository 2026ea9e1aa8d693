/* What `gpupool bench softgpu` compares with: the plain C loops, built with gcc -O3 -march=native. */
#include <math.h>
#include <stdint.h>
#include <time.h>

static __attribute__((noinline)) void saxpy_once(long n, float a, const float *restrict x, float *restrict y) {
  for (long i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}
void saxpy(long n, float a, const float *x, float *y, long rounds) {
  for (long r = 0; r < rounds; ++r) saxpy_once(n, a, x, y);
}

float sum(long n, const float *x) {
  float total = 0.0f;
  for (long i = 0; i < n; ++i) total += x[i];
  return total;
}

void mandelbrot(int width, int height, int limit, int *image) {
  for (int row = 0; row < height; ++row) {
    for (int column = 0; column < width; ++column) {
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
  }
}

/* The order of loops in which the innermost one is over neighbours, which gcc makes vectors of. */
void matmul(long n, const float *restrict a, const float *restrict b, float *restrict c) {
  for (long i = 0; i < n; ++i) {
    for (long j = 0; j < n; ++j) c[i * n + j] = 0.0f;
    for (long k = 0; k < n; ++k) {
      for (long j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
}

/* As in textbooks: a sum for each element, in the order in which it is written down. */
void matmul_textbook(long n, const float *restrict a, const float *restrict b, float *restrict c) {
  for (long i = 0; i < n; ++i) {
    for (long j = 0; j < n; ++j) {
      float sum = 0.0f;
      for (long k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
  }
}

/* Input that repeats for a seed: multiples of 1/8 in [-1, 1], so that short sums are exact in f16 and f32. */
void fill(long n, uint32_t seed, float *x) {
  for (long i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)((int)(seed >> 24) % 17 - 8) / 8.0f;
  }
}

/* f32 to f16 for values that f16 holds exactly. */
void to_half(long n, const float *x, uint16_t *half) {
  for (long i = 0; i < n; ++i) {
    union { float value; uint32_t bits; } u = {x[i]};
    const uint32_t exponent = u.bits >> 23 & 0xff;
    half[i] = (uint16_t)(u.bits >> 16 & 0x8000u);
    if (exponent != 0) half[i] |= (uint16_t)((exponent - 112) << 10 | (u.bits >> 13 & 0x3ffu));
  }
}

double difference(long n, const float *x, const float *y) {
  double largest = 0;
  for (long i = 0; i < n; ++i) {
    const double d = fabs((double)x[i] - (double)y[i]);
    if (!(d <= largest)) largest = d;
  }
  return largest;
}

long unequal(long n, const int *x, const int *y) {
  long count = 0;
  for (long i = 0; i < n; ++i) count += x[i] != y[i];
  return count;
}

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);
typedef int (*synchronize_function)(void);

/* Seconds of `count` launches of one empty block and the wait for the last, or for each; negative: an error. */
double launches(launch_function launch, synchronize_function synchronize, void *kernel, long count, int wait_each) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long i = 0; i < count; ++i) {
    if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) != 0) return -1;
    if (wait_each && synchronize() != 0) return -1;
  }
  if (synchronize() != 0) return -1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
