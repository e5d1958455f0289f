// MNIST.
#include <zlib.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/data/idx.h"
#include "core/data/stand_in.h"

namespace mslua::data {
namespace {

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
  SampleDraws draws = StandInDraws(seed, part, i);
  const int label = StandInBelow(&draws, 10);
  const double scale = draws.Uniform(7.5, 9.5);  // pixels of half the digit's height
  const double left = 14 - scale / 2 + draws.Uniform(-3, 3), top = 14 - scale + draws.Uniform(-2.5, 2.5);
  const double slant = draws.Uniform(-0.25, 0.25), thickness = draws.Uniform(0.08, 0.17);
  float noise[kSize * kSize];
  StandInNoise(draws, kSize * kSize, noise);
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

// The four IDX files, .gz. Digits of straight strokes, moved, slanted and noisy.
Status Make(const std::string& path, const MakeOptions& options) {
  const std::vector<std::string> files{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                       "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
  RETURN_IF_ERROR(PrepareStandIn(path, files, options));
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

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  return OpenIdx({"MnistDataset",
                  "'THE MNIST DATABASE' from http://yann.lecun.com/exdb/mnist/",
                  "mnist",
                  {"", "/MNIST/raw", "/raw"}},
                 fields);
}

}  // namespace

MSLUA_SOURCE(mnist) {
  SourceDef def("mnist", "MnistDataset");
  def.title = "MNIST";
  def.pictures = true;
  def.doc = "MNIST's IDX files, plain or .gz: image uint8 [28, 28, 1], label int32 [].";
  def.fields = {PathField("dataset_dir", "folder of train-images-idx3-ubyte and the others"), UsageField()};
  def.open = Open;
  def.fits = IsFolder;
  def.expects = "the files of MNIST";
  def.make = Make;
  return def;
}

}  // namespace mslua::data
