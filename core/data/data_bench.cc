// Images per second through the loader's pipeline, on one thread (Fill) and with workers.
//   bazel run -c opt //core/data:data_bench
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "core/data/loader.h"

namespace mslua::data {
namespace {

// CIFAR-like images in memory.
Dataset Images(int64_t n, int64_t size) {
  auto pixels = std::make_shared<std::vector<uint8_t>>(n * size * size * 3);
  for (size_t i = 0; i < pixels->size(); ++i) (*pixels)[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  return Dataset(NumpySlices({{"image", {DType::kU8, {n, size, size, 3}}, {pixels, pixels->data()}}}));
}

// As in the recipes: crop, flip, [resize,] rescale, normalise, planes.
Dataset Recipe(const Dataset& images, int64_t size, int64_t to) {
  std::vector<Transform> chain{RandomCrop{size, size, 4, 4, 4, 4}, RandomHorizontalFlip{}};
  if (to != size) chain.push_back(Resize{to, to});
  chain.insert(chain.end(),
               {Rescale{1 / 255.0}, Normalize{{0.4914, 0.4822, 0.4465}, {0.2023, 0.1994, 0.2010}}, HWC2CHW{}});
  return images.Map({chain, "image"}).Shuffle({1000}).Batch({128, true});
}

void BM_Loader(benchmark::State& state) {
  const int64_t from = state.range(0), to = state.range(1);
  auto pipeline = Pipeline::Open(Recipe(Images(1280, from), from, to), {});
  if (!pipeline.ok()) {
    std::fprintf(stderr, "%s\n", pipeline.status().ToString().c_str());
    std::exit(1);
  }
  Loader loader(*pipeline, {static_cast<int>(state.range(2))});
  Batch batch;
  int64_t images = 0;
  for (auto _ : state) {
    if (!*loader.Next(&batch) && !*loader.Next(&batch)) std::exit(1);
    benchmark::DoNotOptimize(batch.columns[0].data);
    images += batch.valid;
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(images), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Loader)
    ->ArgNames({"from", "to", "workers"})
    ->Args({32, 32, 0})
    ->Args({32, 224, 0})
    ->Args({32, 224, 1})
    ->Args({256, 224, 0})
    ->UseRealTime();

}  // namespace
}  // namespace mslua::data

BENCHMARK_MAIN();
