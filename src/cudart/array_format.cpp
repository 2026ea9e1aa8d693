#include "cudart/array_format.h"

namespace gpupool::cudart {

namespace {

struct Plain {
  CUarray_format format;
  cudaChannelFormatKind kind;
  int bits;
};

constexpr Plain plain_formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, cudaChannelFormatKindUnsigned, 8},
    {CU_AD_FORMAT_UNSIGNED_INT16, cudaChannelFormatKindUnsigned, 16},
    {CU_AD_FORMAT_UNSIGNED_INT32, cudaChannelFormatKindUnsigned, 32},
    {CU_AD_FORMAT_SIGNED_INT8, cudaChannelFormatKindSigned, 8},
    {CU_AD_FORMAT_SIGNED_INT16, cudaChannelFormatKindSigned, 16},
    {CU_AD_FORMAT_SIGNED_INT32, cudaChannelFormatKindSigned, 32},
    {CU_AD_FORMAT_HALF, cudaChannelFormatKindFloat, 16},
    {CU_AD_FORMAT_FLOAT, cudaChannelFormatKindFloat, 32},
};

}  // namespace

size_t format_bytes(CUarray_format format) {
  for (const Plain& plain : plain_formats) {
    if (plain.format == format) return static_cast<size_t>(plain.bits) / 8;
  }
  return 0;
}

bool driver_format(const cudaChannelFormatDesc& d, CUarray_format& format, unsigned& channels) {
  const int bits[] = {d.x, d.y, d.z, d.w};
  channels = 0;
  while (channels < 4 && bits[channels] != 0) {
    if (bits[channels] != d.x) return false;
    ++channels;
  }
  for (unsigned n = channels; n < 4; ++n) {
    if (bits[n] != 0) return false;
  }
  if (channels == 0 || channels == 3) return false;
  for (const Plain& plain : plain_formats) {
    if (plain.kind == d.f && plain.bits == d.x) {
      format = plain.format;
      return true;
    }
  }
  return false;
}

cudaChannelFormatDesc channel_description(CUarray_format format, unsigned channels) {
  for (const Plain& plain : plain_formats) {
    if (plain.format == format) {
      const auto bits = [&](unsigned n) { return channels > n ? plain.bits : 0; };
      return {bits(0), bits(1), bits(2), bits(3), plain.kind};
    }
  }
  return {0, 0, 0, 0, cudaChannelFormatKindNone};
}

}  // namespace gpupool::cudart
