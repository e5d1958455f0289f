// oneDNN's best time for convolutions and matrix products in isolation, and the bandwidth of memory: the floor of a
// training step. Lines on stdin, one answer a line:
//   conv f32|bf16 N C H W O K STRIDE PAD   forward, input gradient, weight gradient: three numbers, ms
//   gemm f32|bf16 BATCH M N K TA TB        ms
//   bandwidth BYTES                        GB/s read and written by y += x over arrays of so many bytes in all
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;
using Arguments = std::unordered_map<int, memory>;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory Make(const memory::desc& d) {
  memory m(d, Engine());
  std::memset(m.get_data_handle(), 0, d.get_size());
  return m;
}

// Milliseconds; the best of at least 3 runs and 40 ms.
double Best(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  double best = 1e9;
  const auto begin = Clock::now();
  for (int n = 0; n < 3 || Clock::now() - begin < std::chrono::milliseconds(40); ++n) {
    const auto start = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

double TimeOf(const dnnl::primitive& primitive, const Arguments& arguments) {
  dnnl::stream stream(Engine());
  return Best([&] {
    primitive.execute(stream, arguments);
    stream.wait();
  });
}

struct ConvSizes {
  long n, c, h, w, o, k, stride, pad;
};

// The best over the layouts of images; weights as each primitive likes them.
void PrintConv(const ConvSizes& s, Type type) {
  const long oh = (s.h + 2 * s.pad - s.k) / s.stride + 1, ow = (s.w + 2 * s.pad - s.k) / s.stride + 1;
  const memory::dims strides = {s.stride, s.stride}, pads = {s.pad, s.pad};
  double best[3] = {1e9, 1e9, 1e9};
  for (Tag tag : {Tag::any, Tag::nhwc, Tag::nchw}) {
    const memory::desc x({s.n, s.c, s.h, s.w}, type, tag), w({s.o, s.c, s.k, s.k}, type, Tag::any),
        y({s.n, s.o, oh, ow}, type, tag);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    using Forward = dnnl::convolution_forward;
    using Data = dnnl::convolution_backward_data;
    using Weights = dnnl::convolution_backward_weights;
    const Forward::primitive_desc f({dnnl::prop_kind::forward_training, algorithm, x, w, y, strides, pads, pads},
                                    Engine());
    const Data::primitive_desc d({algorithm, x, w, y, strides, pads, pads}, Engine(), f);
    const Weights::primitive_desc g({algorithm, x, w, y, strides, pads, pads}, Engine(), f);
    best[0] = std::min(best[0], TimeOf(Forward(f), {{DNNL_ARG_SRC, Make(f.src_desc())},
                                                    {DNNL_ARG_WEIGHTS, Make(f.weights_desc())},
                                                    {DNNL_ARG_DST, Make(f.dst_desc())}}));
    best[1] = std::min(best[1], TimeOf(Data(d), {{DNNL_ARG_DIFF_SRC, Make(d.diff_src_desc())},
                                                 {DNNL_ARG_WEIGHTS, Make(d.weights_desc())},
                                                 {DNNL_ARG_DIFF_DST, Make(d.diff_dst_desc())}}));
    best[2] = std::min(best[2], TimeOf(Weights(g), {{DNNL_ARG_SRC, Make(g.src_desc())},
                                                    {DNNL_ARG_DIFF_WEIGHTS, Make(g.diff_weights_desc())},
                                                    {DNNL_ARG_DIFF_DST, Make(g.diff_dst_desc())}}));
  }
  std::printf("%.6f %.6f %.6f\n", best[0], best[1], best[2]);
}

// The best of plain operands and of formats as the primitive likes them.
void PrintGemm(long batch, long m, long n, long k, bool ta, bool tb, Type type) {
  const auto plain = [&](long r, long c, bool t) {
    return batch == 1 ? memory::desc({r, c}, type, t ? Tag::ba : Tag::ab)
                      : memory::desc({batch, r, c}, type, t ? Tag::acb : Tag::abc);
  };
  double best = 1e9;
  for (int any = 0; any < (batch == 1 ? 3 : 1); ++any) {
    const memory::desc a = any == 2 ? memory::desc({m, k}, type, Tag::any) : plain(m, k, ta);
    const memory::desc b = any > 0 ? memory::desc({k, n}, type, Tag::any) : plain(k, n, tb);
    const dnnl::matmul::primitive_desc pd({a, b, plain(m, n, false)}, Engine());
    best = std::min(best, TimeOf(dnnl::matmul(pd), {{DNNL_ARG_SRC, Make(pd.src_desc())},
                                                    {DNNL_ARG_WEIGHTS, Make(pd.weights_desc())},
                                                    {DNNL_ARG_DST, Make(pd.dst_desc())}}));
  }
  std::printf("%.6f\n", best);
}

void PrintBandwidth(long bytes) {
  const long n = bytes / 8;  // floats of each of two arrays
  std::vector<float> x(n, 1.0f), y(n, 1.0f);
  const float* from = x.data();
  float* to = y.data();
  const double ms = Best([&] {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; ++i) to[i] += from[i];
  });
  std::printf("%.3f\n", 12.0 * static_cast<double>(n) / ms * 1e-6);
}

Type TypeOf(const char* name) { return std::strcmp(name, "bf16") == 0 ? Type::bf16 : Type::f32; }

}  // namespace

int main() {
  char line[256], type[8];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    ConvSizes s;
    long batch, m, n, k, ta, tb, bytes;
    try {
      if (std::sscanf(line, "conv %7s %ld %ld %ld %ld %ld %ld %ld %ld", type, &s.n, &s.c, &s.h, &s.w, &s.o, &s.k,
                      &s.stride, &s.pad) == 9) {
        PrintConv(s, TypeOf(type));
      } else if (std::sscanf(line, "gemm %7s %ld %ld %ld %ld %ld %ld", type, &batch, &m, &n, &k, &ta, &tb) == 7) {
        PrintGemm(batch, m, n, k, ta != 0, tb != 0, TypeOf(type));
      } else if (std::sscanf(line, "bandwidth %ld", &bytes) == 1) {
        PrintBandwidth(bytes);
      } else {
        std::fprintf(stderr, "floors: not understood: %s", line);
        return 2;
      }
    } catch (const dnnl::error& e) {
      std::fprintf(stderr, "floors: %s: %s", e.what(), line);
      return 1;
    }
    std::fflush(stdout);
  }
}
