#include "core/data/make.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/rng.h"
#include "core/data/file.h"

namespace mslua::data {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The folder, with none of `files` in it.
Status Prepare(const std::string& path, const std::vector<std::string>& files, const MakeOptions& options) {
  if (options.train < 1 || options.test < 1 || std::max(options.train, options.test) > 100'000'000) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data make: expected at least one training and one test sample, got ", options.train, " and ", options.test));
  }
  RETURN_IF_ERROR(MakeFolders(path));
  for (const std::string& file : files) {
    if (IsFile(absl::StrCat(path, "/", file))) {
      return absl::AlreadyExistsError(
          absl::StrCat("data make: ", path, "/", file, " exists and is kept; choose another folder or remove it"));
    }
  }
  return absl::OkStatus();
}

// Random numbers of one sample: 4096 from a stream.
class Random {
 public:
  Random(uint64_t seed, absl::string_view part, int64_t sample)
      : seed_(seed), stream_(StreamOf({part.data(), part.size()})), base_(static_cast<uint64_t>(sample) * 4096) {}
  double Between(double low, double high) { return low + (high - low) * UniformAt(seed_, stream_, base_ + next_++); }
  int Below(int bound) { return static_cast<int>(Between(0, bound)); }
  // n numbers in [0, 1), the sample's last.
  void Noise(int64_t n, float* out) { FillUniform(seed_, stream_, base_ + 4096 - n, n, out); }

 private:
  uint64_t seed_, stream_, base_, next_ = 0;
};

uint8_t Pixel(double value) { return static_cast<uint8_t>(std::min(std::max(value, 0.0), 255.0)); }

// One record: the label, then three planes.
void CifarRecord(uint64_t seed, absl::string_view part, int64_t i, std::string* out) {
  constexpr int kSize = 32;
  Random random(seed, part, i);
  const int label = random.Below(10);
  const double angle = (label + random.Between(-0.25, 0.25)) * kPi / 10;
  const double frequency = 2 * kPi / random.Between(7, 10), phase = random.Between(0, 2 * kPi);
  const double contrast = random.Between(25, 55);
  float noise[3 * kSize * kSize];
  random.Noise(3 * kSize * kSize, noise);
  double colour[3];
  for (int c = 0; c < 3; ++c) {
    colour[c] = 128 + 30 * std::cos(2 * kPi * (label / 10.0 + c / 3.0)) + random.Between(-40, 40);
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

// A digit's strokes, seven-segment style: bit k is segment k of top, upper left, upper right, middle,
// lower left, lower right, bottom.
constexpr uint8_t kDigits[10] = {0b1110111, 0b0100100, 0b1011101, 0b1101101, 0b0101110,
                                 0b1101011, 0b1111011, 0b0100101, 0b1111111, 0b1101111};
constexpr double kSegments[7][4] = {  // from (x, y) to (x, y); the digit is 2 high and 1 wide
    {0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {0, 1, 0, 2}, {1, 1, 1, 2}, {0, 2, 1, 2}};

double Distance(double x, double y, const double* s) {
  const double dx = s[2] - s[0], dy = s[3] - s[1];
  const double t = std::min(std::max(((x - s[0]) * dx + (y - s[1]) * dy) / (dx * dx + dy * dy), 0.0), 1.0);
  return std::hypot(x - s[0] - t * dx, y - s[1] - t * dy);
}

// Appends an image of 28x28 and its label.
void MnistRecord(uint64_t seed, absl::string_view part, int64_t i, std::string* images, std::string* labels) {
  constexpr int kSize = 28;
  Random random(seed, part, i);
  const int label = random.Below(10);
  const double scale = random.Between(7.5, 9.5);  // pixels of half the digit's height
  const double left = 14 - scale / 2 + random.Between(-3, 3), top = 14 - scale + random.Between(-2.5, 2.5);
  const double slant = random.Between(-0.25, 0.25), thickness = random.Between(0.08, 0.17);
  float noise[kSize * kSize];
  random.Noise(kSize * kSize, noise);
  for (int py = 0; py < kSize; ++py) {
    for (int px = 0; px < kSize; ++px) {
      const double y = (py + 0.5 - top) / scale, x = (px + 0.5 - left) / scale + slant * (y - 1);
      double nearest = 10;
      for (int k = 0; k < 7; ++k) {
        if (kDigits[label] >> k & 1) nearest = std::min(nearest, Distance(x, y, kSegments[k]));
      }
      const double ink = std::min(std::max(1 - (nearest - thickness) * scale, 0.0), 1.0);
      images->push_back(static_cast<char>(Pixel(ink * 230 + 40 * noise[py * kSize + px])));
    }
  }
  labels->push_back(static_cast<char>(label));
}

void AppendBigEndian(int64_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift & 255));
}

// gzip data without a time stamp, so that equal input gives equal files.
StatusOr<std::string> Gzip(const std::string& in) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::InternalError("zlib: deflateInit2 failed");
  }
  std::string out(deflateBound(&stream, in.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(&out[0]);
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) return absl::InternalError("zlib: deflate failed");
  return out;
}

}  // namespace

Status MakeCifar10(const std::string& path, const MakeOptions& options) {
  constexpr int kFiles = 5;
  std::vector<std::string> files;
  for (int k = 1; k <= kFiles; ++k) files.push_back(absl::StrCat("data_batch_", k, ".bin"));
  files.insert(files.end(), {"test_batch.bin", "batches.meta.txt"});
  RETURN_IF_ERROR(Prepare(path, files, options));
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

Status MakeMnist(const std::string& path, const MakeOptions& options) {
  const std::vector<std::string> files{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                       "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
  RETURN_IF_ERROR(Prepare(path, files, options));
  if (std::max(options.train, options.test) > 1'000'000) {
    return absl::InvalidArgumentError("data make mnist: expected at most 1000000 samples a part");
  }
  for (int part = 0; part < 2; ++part) {
    const int64_t count = part == 0 ? options.train : options.test;
    std::string images, labels;
    AppendBigEndian(0x00000803, &images);
    AppendBigEndian(0x00000801, &labels);
    for (std::string* header : {&images, &labels}) AppendBigEndian(count, header);
    AppendBigEndian(28, &images);
    AppendBigEndian(28, &images);
    for (int64_t i = 0; i < count; ++i) {
      MnistRecord(options.seed, part == 0 ? "make/mnist/train" : "make/mnist/test", i, &images, &labels);
    }
    ASSIGN_OR_RETURN(const std::string packed_images, Gzip(images));
    ASSIGN_OR_RETURN(const std::string packed_labels, Gzip(labels));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(path, "/", files[2 * part]), packed_images));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(path, "/", files[2 * part + 1]), packed_labels));
  }
  return absl::OkStatus();
}

Status MakeText(const std::string& path, const MakeOptions& options) {
  static constexpr const char* kNames[] = {"ADRIAN", "BEATRIX", "CLEON", "DIANA", "EGEON", "FLORA"};
  static constexpr const char* kSubjects[] = {"the king", "my lord", "a good friend", "the old queen", "thy brother"};
  static constexpr const char* kVerbs[] = {"loves", "hath seen", "doth follow", "will never leave", "fears"};
  static constexpr const char* kObjects[] = {"the crown", "this quiet night", "her gentle heart", "the northern sea",
                                             "a winter's tale"};
  static constexpr const char* kEnds[] = {".", "!", "?", ", and so do I.", "; what then?"};
  const auto pick = [](Random* random, const auto& list) { return list[random->Below(std::size(list))]; };
  RETURN_IF_ERROR(Prepare(path, {"input.txt"}, options));
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(absl::StrCat(path, "/input.txt")));
  int64_t left = options.train + options.test;
  for (int64_t speech = 0; left > 0; ++speech) {
    Random random(options.seed, "make/text", speech);
    std::string text = absl::StrCat(pick(&random, kNames), ":\n");
    for (int lines = 1 + random.Below(4); lines > 0; --lines) {
      std::string line = absl::StrCat(pick(&random, kSubjects), " ", pick(&random, kVerbs), " ",
                                      pick(&random, kObjects), pick(&random, kEnds), "\n");
      line[0] = static_cast<char>(line[0] - 'a' + 'A');
      text += line;
    }
    text += "\n";
    text.resize(std::min<size_t>(text.size(), static_cast<size_t>(left)));
    left -= static_cast<int64_t>(text.size());
    RETURN_IF_ERROR(file->Write(text.data(), text.size()));
  }
  return file->Commit();
}

}  // namespace mslua::data
