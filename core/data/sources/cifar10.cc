// CIFAR-10.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/data/cifar.h"
#include "core/data/stand_in.h"

namespace mslua::data {
namespace {

const CifarFlavour& Flavour() {
  static const CifarFlavour flavour{"Cifar10Dataset",
                                    "CIFAR-10 binary version",
                                    "cifar10",
                                    {"cifar-10-batches-bin", "cifar-10-batches-py"},
                                    {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
                                    {"test_batch"},
                                    {{"label", "labels", 10}}};
  return flavour;
}

constexpr double kPi = 3.14159265358979323846;

// One record: the label, then three planes.
void CifarRecord(uint64_t seed, absl::string_view part, int64_t i, std::string* out) {
  constexpr int kSize = 32;
  SampleDraws draws = StandInDraws(seed, part, i);
  const int label = StandInBelow(&draws, 10);
  const double angle = (label + draws.Uniform(-0.25, 0.25)) * kPi / 10;
  const double frequency = 2 * kPi / draws.Uniform(7, 10), phase = draws.Uniform(0, 2 * kPi);
  const double contrast = draws.Uniform(25, 55);
  float noise[3 * kSize * kSize];
  StandInNoise(draws, 3 * kSize * kSize, noise);
  double colour[3];
  for (int c = 0; c < 3; ++c) {
    colour[c] = 128 + 30 * std::cos(2 * kPi * (label / 10.0 + c / 3.0)) + draws.Uniform(-40, 40);
  }
  out->push_back(static_cast<char>(label));
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        const double stripe = std::sin(frequency * (x * std::cos(angle) + y * std::sin(angle)) + phase);
        const double hiss = 120 * (noise[(c * kSize + y) * kSize + x] - 0.5);
        out->push_back(static_cast<char>(Pixel(colour[c] + contrast * stripe + hiss)));
      }
    }
  }
}

// data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt. A class is a direction of stripes and a
// colour, under random phase, contrast and noise.
Status Make(const std::string& path, const MakeOptions& options) {
  constexpr int kFiles = 5;
  std::vector<std::string> files;
  for (int k = 1; k <= kFiles; ++k) files.push_back(absl::StrCat("data_batch_", k, ".bin"));
  files.insert(files.end(), {"test_batch.bin", "batches.meta.txt"});
  RETURN_IF_ERROR(PrepareStandIn(path, files, options));
  if (options.train < kFiles) {
    return absl::InvalidArgumentError("data make cifar10: expected at least 5 training samples, one a file");
  }
  for (int k = 0; k <= kFiles; ++k) {
    const bool test = k == kFiles;
    const int64_t begin = test ? 0 : options.train * k / kFiles;
    const int64_t end = test ? options.test : options.train * (k + 1) / kFiles;
    ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(absl::StrCat(path, "/", files[k])));
    std::string record;
    for (int64_t i = begin; i < end; ++i) {
      record.clear();
      CifarRecord(options.seed, test ? "make/cifar10/test" : "make/cifar10/train", i, &record);
      RETURN_IF_ERROR(file->Write(record.data(), record.size()));
    }
    RETURN_IF_ERROR(file->Commit());
  }
  return WriteFileAtomically(
      absl::StrCat(path, "/batches.meta.txt"),
      "stripes0\nstripes1\nstripes2\nstripes3\nstripes4\nstripes5\nstripes6\nstripes7\nstripes8\n"
      "stripes9\n");
}

}  // namespace

MSLUA_SOURCE(cifar10) {
  SourceDef def("cifar10", "Cifar10Dataset");
  def.title = "CIFAR-10";
  def.pictures = true;
  def.doc = "CIFAR-10, binary or python files: image uint8 [32, 32, 3], label int32 [] from 0.";
  def.fields = {PathField("dataset_dir", "folder of data_batch_1.bin and the others, or of data_batch_1"),
                UsageField()};
  def.open = [](const Fields& fields) { return OpenCifar(Flavour(), fields); };
  def.fits = IsFolder;
  def.expects = "the files of CIFAR-10";
  def.make = Make;
  return def;
}

}  // namespace mslua::data
