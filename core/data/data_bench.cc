// Images per second through the loader's pipeline, on one thread (Fill) and with workers.
//   bazel run -c opt //core/data:data_bench
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/data/loader.h"
#include "core/data/testing/memory_sources.h"

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
  return images.Map({chain, {"image"}}).Shuffle({1000}).Batch({128, true});
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

// Opening a CSV file of `columns` columns, a fifth of them categories and a fifth hashed.
void BM_OpenCsv(benchmark::State& state) {
  constexpr int kRows = 100'000;
  const int columns = static_cast<int>(state.range(0));
  const std::string path =
      absl::StrCat(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp", "/bench.csv");
  std::map<std::string, std::string> types;
  std::string text;
  for (int c = 0; c < columns; ++c) {
    absl::StrAppend(&text, c > 0 ? "," : "", "c", c);
    if (c % 5 >= 3) types[absl::StrCat("c", c)] = c % 5 == 3 ? "category" : "hash(1000)";
  }
  text += "\n";
  uint32_t random = 1;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < columns; ++c) {
      random = random * 1664525 + 1013904223;
      const uint32_t value = random >> 8;
      absl::StrAppend(&text, c > 0 ? "," : "");
      if (c % 5 >= 3)
        absl::StrAppend(&text, "value", value % 500);
      else
        absl::StrAppend(&text, static_cast<double>(value % 1000000) / 1000);
    }
    text += "\n";
  }
  std::ofstream(path, std::ios::binary) << text;
  for (auto _ : state) {
    const auto reader = OpenSource(Source("csv", {{"dataset_files", path}, {"columns", types}}));
    if (!reader.ok() || (*reader)->size() != kRows) std::exit(1);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  std::remove(path.c_str());
}
BENCHMARK(BM_OpenCsv)->ArgName("columns")->Arg(40)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mslua::data

BENCHMARK_MAIN();
