#include "core/data/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/rng.h"
#include "core/data/augment.h"
#include "core/data/cast.h"

namespace mslua::data {
namespace {

Status Bad(const Transform& transform, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Name(transform), ": ", what));
}

// ---- Taps --------------------------------------------------------------------------------------

void Identity(int64_t n, std::vector<Tap>* taps) {
  taps->resize(n);
  for (int64_t i = 0; i < n; ++i) (*taps)[i] = {static_cast<int32_t>(i), static_cast<int32_t>(i), 0};
}

}  // namespace

void Window(int64_t offset, int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare) {
  spare->resize(n);
  const int64_t have = static_cast<int64_t>(taps->size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = i + offset;
    (*spare)[i] = j >= 0 && j < have ? (*taps)[j] : Tap{-1, -1, 0};
  }
  taps->swap(*spare);
}

void TakeNearest(int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare) {
  spare->resize(n);
  const int64_t last = static_cast<int64_t>(taps->size()) - 1;
  const double step = static_cast<double>(taps->size()) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i)
    (*spare)[i] = (*taps)[std::min(static_cast<int64_t>((static_cast<double>(i) + 0.5) * step), last)];
  taps->swap(*spare);
}

void Interpolate(int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare) {
  spare->resize(n);
  const int64_t last = static_cast<int64_t>(taps->size()) - 1;
  const double step = static_cast<double>(taps->size()) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double at = std::min(std::max((i + 0.5) * step - 0.5, 0.0), static_cast<double>(last));
    const int64_t j = static_cast<int64_t>(at);
    (*spare)[i] = {(*taps)[j].a, (*taps)[std::min(j + 1, last)].a, static_cast<float>(at - j)};
  }
  taps->swap(*spare);
}

namespace {

// ---- Rows --------------------------------------------------------------------------------------

// Four channels of a pixel, or four pixels of a plane: a SIMD register of every machine we build for.
using F4 = ImageScratch::F4;
typedef float F4Unaligned __attribute__((vector_size(16), aligned(4)));

int64_t GroupsOf(int64_t channels) { return (channels + 3) / 4; }

// Row y of the source, scaled: [groups of 4 channels][width + 1] pixels of F4. The last pixel is padding.
template <class T>
void LoadLine(const ImageView& image, int64_t y, const float* scale, const float* shift, float* line) {
  const int64_t w = image.width, channels = image.channels;
  const T* data = static_cast<const T*>(image.data);
  for (int64_t c = 0; c < channels; ++c) {
    const T* in = image.planar ? data + (c * image.height + y) * w : data + y * w * channels + c;
    const int64_t step = image.planar ? 1 : channels;
    const float s = scale[c], b = shift[c];
    float* out = line + (c / 4) * 4 * (w + 1) + c % 4;
    for (int64_t x = 0; x < w; ++x) out[4 * x] = static_cast<float>(in[x * step]) * s + b;
    out[4 * w] = b;
  }
}

// Pixel `tap` of a line. kInterpolate: between two.
template <bool kInterpolate>
F4 PixelAt(const F4* line, const Tap& tap) {
  const F4 a = line[tap.a];
  if constexpr (!kInterpolate) return a;
  return a + tap.w * (line[tap.b] - a);
}

// One group of channels of a line through the taps, into up to four planes of n values.
template <bool kInterpolate>
void ApplyTaps(const F4* line, const Tap* tap, int64_t n, float* const* planes, int64_t channels) {
  int64_t x = 0;
  for (; x + 4 <= n; x += 4) {
    const F4 p = PixelAt<kInterpolate>(line, tap[x]), q = PixelAt<kInterpolate>(line, tap[x + 1]);
    const F4 r = PixelAt<kInterpolate>(line, tap[x + 2]), s = PixelAt<kInterpolate>(line, tap[x + 3]);
    // Four pixels to four planes: a 4x4 transposition.
    const F4 pq01 = __builtin_shufflevector(p, q, 0, 4, 1, 5), pq23 = __builtin_shufflevector(p, q, 2, 6, 3, 7);
    const F4 rs01 = __builtin_shufflevector(r, s, 0, 4, 1, 5), rs23 = __builtin_shufflevector(r, s, 2, 6, 3, 7);
    const F4 plane[4] = {
        __builtin_shufflevector(pq01, rs01, 0, 1, 4, 5), __builtin_shufflevector(pq01, rs01, 2, 3, 6, 7),
        __builtin_shufflevector(pq23, rs23, 0, 1, 4, 5), __builtin_shufflevector(pq23, rs23, 2, 3, 6, 7)};
    for (int64_t c = 0; c < channels; ++c) *reinterpret_cast<F4Unaligned*>(planes[c] + x) = plane[c];
  }
  for (; x < n; ++x) {
    const F4 p = PixelAt<kInterpolate>(line, tap[x]);
    for (int64_t c = 0; c < channels; ++c) planes[c][x] = p[c];
  }
}

// `out` is neither a nor b; those may be one.
void Mix(const float* a, const float* b, float w, int64_t n, float* __restrict out) {
  for (int64_t x = 0; x < n; ++x) out[x] = a[x] + w * (b[x] - a[x]);
}

// One value of the result in its type. Integers are rounded to nearest, and saturate.
template <class T>
T Stored(float value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    const double wanted = std::nearbyint(value);
    if (!(wanted > static_cast<double>(std::numeric_limits<T>::min()))) return std::numeric_limits<T>::min();
    if (wanted >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(wanted);
  } else {
    return T(value);
  }
}

// Where a pass puts its result.
struct Target {
  void* data;
  DType dtype;
  bool planar;
};

// `line_loader` is LoadLine of the image's type.
void RunPass(const ImageView& image, const std::vector<float>& scale, const std::vector<float>& shift,
             void (*load_line)(const ImageView&, int64_t, const float*, const float*, float*), ImageScratch* scratch,
             const Target& target) {
  const std::vector<Tap>& rows = scratch->rows;
  std::vector<Tap>& columns = scratch->columns;
  const int64_t channels = image.channels, height = static_cast<int64_t>(rows.size());
  const int64_t width = static_cast<int64_t>(columns.size()), row_size = channels * width;
  bool interpolate = false;
  for (Tap& tap : columns) {
    interpolate |= tap.w != 0;
    // Padding is the pixel behind the line's end.
    if (tap.a < 0) tap.a = static_cast<int32_t>(image.width);
    if (tap.b < 0) tap.b = static_cast<int32_t>(image.width);
  }
  scratch->line.resize(GroupsOf(channels) * (image.width + 1));
  scratch->resized.resize(3 * row_size);
  scratch->mixed.resize(row_size);

  // A resized source row is kept in the slot of its parity, since most result rows mix two neighbours;
  // slot 2 is the row of padding.
  int64_t held[2] = {-1, -1};
  for (int64_t c = 0; c < channels; ++c) {
    std::fill_n(scratch->resized.data() + 2 * row_size + c * width, width, shift[c]);
  }
  const auto resized_row = [&](int64_t y) -> const float* {
    float* slot = scratch->resized.data() + (y < 0 ? 2 : y & 1) * row_size;
    if (y >= 0 && held[y & 1] != y) {
      held[y & 1] = y;
      load_line(image, y, scale.data(), shift.data(), reinterpret_cast<float*>(scratch->line.data()));
      for (int64_t c = 0; c < channels; c += 4) {
        float* planes[4];
        const int64_t some = std::min<int64_t>(4, channels - c);
        for (int64_t k = 0; k < some; ++k) planes[k] = slot + (c + k) * width;
        const F4* line = scratch->line.data() + c / 4 * (image.width + 1);
        (interpolate ? ApplyTaps<true> : ApplyTaps<false>)(line, columns.data(), width, planes, some);
      }
    }
    return slot;
  };

  const bool direct = target.dtype == DType::kF32 && target.planar;
  for (int64_t y = 0; y < height; ++y) {
    const float* a = resized_row(rows[y].a);
    const float* b = rows[y].w != 0 ? resized_row(rows[y].b) : nullptr;
    if (direct) {
      for (int64_t c = 0; c < channels; ++c) {
        float* out = static_cast<float*>(target.data) + (c * height + y) * width;
        if (b != nullptr) {
          Mix(a + c * width, b + c * width, rows[y].w, width, out);
        } else {
          std::memcpy(out, a + c * width, sizeof(float) * width);
        }
      }
      continue;
    }
    const float* row = a;
    if (b != nullptr) {
      Mix(a, b, rows[y].w, row_size, scratch->mixed.data());
      row = scratch->mixed.data();
    }
    DispatchDType(target.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* data = static_cast<T*>(target.data);
      for (int64_t c = 0; c < channels; ++c) {
        T* out = target.planar ? data + (c * height + y) * width : data + y * row_size + c;
        const int64_t step = target.planar ? 1 : channels;
        for (int64_t x = 0; x < width; ++x) out[x * step] = Stored<T>(row[c * width + x]);
      }
    });
  }
}

// The numbers that a sample takes from the next stream; of a transform that is not random, none.
SampleDraws DrawsOf(const VisionDef& def, const Draws& draws, size_t* stream) {
  const uint64_t key = def.draws > 0 ? draws.streams[(*stream)++] : 0;
  return SampleDraws(draws.seed, key, draws.index * static_cast<uint64_t>(def.draws));
}

}  // namespace

bool ImageChain::IsVision(const Transform& transform) {
  return !std::holds_alternative<Rescale>(transform) && !std::holds_alternative<TypeCast>(transform) &&
         !std::holds_alternative<OneHot>(transform);
}

ImageChain::Pass ImageChain::PlainPass(int64_t channels) {
  Pass pass;
  pass.scale.assign(static_cast<size_t>(channels), 1);
  pass.shift.assign(static_cast<size_t>(channels), 0);
  return pass;
}

StatusOr<ImageSize> ImageChain::SizeAfter(const Move& move, ImageSize size) {
  const Transform& transform = move.transform;
  if (const VisionDef* def = move.declared.def) {
    return def->size == nullptr ? StatusOr<ImageSize>(size) : def->size(move.declared.fields, size);
  }
  const auto positive = [&](int64_t height, int64_t width) -> StatusOr<ImageSize> {
    if (height < 1 || width < 1 || height > 1 << 16 || width > 1 << 16) {
      return Bad(transform, absl::StrCat("expected a size of 1 to 65536, got ", height, "x", width));
    }
    return ImageSize{height, width};
  };
  if (const auto* crop = std::get_if<RandomCrop>(&transform)) {
    if (crop->left < 0 || crop->top < 0 || crop->right < 0 || crop->bottom < 0) {
      return Bad(transform, "padding must not be negative");
    }
    const int64_t padded_height = size.height + crop->top + crop->bottom;
    const int64_t padded_width = size.width + crop->left + crop->right;
    if ((size.height >= 0 && crop->height > padded_height) || (size.width >= 0 && crop->width > padded_width)) {
      return Bad(transform, absl::StrCat("the crop, ", crop->height, "x", crop->width,
                                         ", is larger than the padded image, ", padded_height, "x", padded_width));
    }
    return positive(crop->height, crop->width);
  }
  if (const auto* crop = std::get_if<CenterCrop>(&transform)) return positive(crop->height, crop->width);
  if (const auto* resize = std::get_if<Resize>(&transform)) {
    if (resize->width != 0) return positive(resize->height, resize->width);
    RETURN_IF_ERROR(positive(resize->height, resize->height).status());
    if (size.height < 0 || size.width < 0) return ImageSize{-1, -1};
    // As MindSpore: the longer edge is truncated towards zero.
    if (size.height < size.width) return positive(resize->height, size.width * resize->height / size.height);
    return positive(size.height * resize->height / size.width, resize->height);
  }
  return size;
}

StatusOr<ImageChain> ImageChain::Make(const TensorType& in, absl::Span<const Transform> transforms) {
  ImageChain chain;
  chain.channels_ = in.shape[2];
  chain.passes_.push_back(PlainPass(chain.channels_));
  chain.out_ = in;
  if (in.dtype == DType::kF64) chain.out_.dtype = DType::kF32;
  ImageSize size{in.shape[0], in.shape[1]};
  bool resized = false;  // in the last pass
  // A cast to floats of 16 bits or to bool, which storing the result does unless something comes behind it.
  absl::optional<NumberCast> stores;
  for (const Transform& transform : transforms) {
    if (stores.has_value() && !std::holds_alternative<HWC2CHW>(transform)) {
      chain.AddCast(*stores, &resized);
      stores.reset();
    }
    Pass* pass = &chain.passes_.back();
    if (chain.planar_ && IsVision(transform)) return Bad(transform, "comes after HWC2CHW, expected before it");
    const auto multiply_add = [&](size_t c, double scale, double shift) {
      pass->scale[c] = static_cast<float>(pass->scale[c] * scale);
      pass->shift[c] = static_cast<float>(pass->shift[c] * scale + shift);
      pass->affine = true;
    };
    if (std::holds_alternative<HWC2CHW>(transform)) {
      chain.planar_ = true;
    } else if (const auto* vision = std::get_if<Vision>(&transform)) {
      RETURN_IF_ERROR(chain.AddDeclared(*vision, &resized, &size));
    } else if (const auto* rescale = std::get_if<Rescale>(&transform)) {
      for (size_t c = 0; c < pass->scale.size(); ++c) multiply_add(c, rescale->scale, rescale->shift);
      chain.out_.dtype = DType::kF32;
    } else if (const auto* normalize = std::get_if<Normalize>(&transform)) {
      const std::vector<double>&mean = normalize->mean, &std = normalize->std;
      const auto fits = [&](const std::vector<double>& v) {
        return v.size() == 1 || v.size() == static_cast<size_t>(chain.channels_);
      };
      if (!fits(mean) || !fits(std)) {
        return Bad(transform, absl::StrCat("expected 1 or ", chain.channels_, " means and deviations, got ",
                                           mean.size(), " and ", std.size()));
      }
      for (size_t c = 0; c < pass->scale.size(); ++c) {
        const double m = mean[mean.size() == 1 ? 0 : c], s = std[std.size() == 1 ? 0 : c];
        if (!(s > 0)) return Bad(transform, absl::StrCat("expected positive deviations, got ", s));
        multiply_add(c, 1 / s, -m / s);
      }
      chain.out_.dtype = DType::kF32;
    } else if (const auto* cast = std::get_if<TypeCast>(&transform)) {
      // The numbers of a cast to float64 are float32's all the same.
      const NumberCast numbers{chain.out_.dtype == DType::kF64 ? DType::kF32 : chain.out_.dtype, cast->dtype};
      chain.out_.dtype = cast->dtype;
      if (IsInteger(cast->dtype))
        chain.AddCast(numbers, &resized);
      else if (cast->dtype != DType::kF32 && cast->dtype != DType::kF64)
        stores = numbers;
    } else {
      const auto* crop = std::get_if<RandomCrop>(&transform);
      const bool pads = std::holds_alternative<CenterCrop>(transform) ||
                        (crop != nullptr && (crop->left > 0 || crop->top > 0 || crop->right > 0 || crop->bottom > 0));
      const bool resizes = std::holds_alternative<Resize>(transform);
      if ((resizes && resized) || (pads && pass->affine)) {
        chain.passes_.push_back(PlainPass(chain.channels_));
        pass = &chain.passes_.back();
        resized = false;
      }
      resized |= resizes;
      const auto* flip = std::get_if<RandomHorizontalFlip>(&transform);
      if (flip != nullptr && !(flip->prob >= 0 && flip->prob <= 1))
        return Bad(transform, absl::StrCat("expected a probability, got ", flip->prob));
      pass->moves.push_back({transform, {}});
      ASSIGN_OR_RETURN(size, SizeAfter(pass->moves.back(), size));
    }
  }
  chain.out_.shape =
      chain.planar_ ? Shape{chain.channels_, size.height, size.width} : Shape{size.height, size.width, chain.channels_};
  return chain;
}

Status ImageChain::AddDeclared(const Vision& vision, bool* resized, ImageSize* size) {
  const VisionDef* def = FindVision(vision.kind);
  if (def == nullptr) return absl::InvalidArgumentError(absl::StrCat("map: unknown transform '", vision.kind, "'"));
  ASSIGN_OR_RETURN(Fields fields, CheckFields(def->class_name, def->fields, vision.fields));
  if (def->check != nullptr) RETURN_IF_ERROR(def->check(fields, channels_));
  if (def->integers && !IsInteger(out_.dtype)) {
    return BadField(def->class_name.c_str(), absl::StrCat("expected an image of uint8, got ", LongName(out_.dtype),
                                                          "; fix: put it before Rescale, Normalize and TypeCast"));
  }
  if (def->resizes && *resized) {
    passes_.push_back(PlainPass(channels_));
    *resized = false;
  }
  *resized |= def->resizes;
  const Move move{vision, {def, std::move(fields)}};
  ASSIGN_OR_RETURN(*size, SizeAfter(move, *size));
  if (def->move != nullptr) {
    passes_.back().moves.push_back(move);
    return absl::OkStatus();
  }
  passes_.back().paint = move.declared;
  passes_.back().bound = IsInteger(out_.dtype) ? 255 : 1;
  if (def->channels != nullptr) channels_ = def->channels(move.declared.fields, channels_);
  passes_.push_back(PlainPass(channels_));
  *resized = false;
  return absl::OkStatus();
}

void ImageChain::AddCast(NumberCast cast, bool* resized) {
  if (cast.from == cast.to) return;
  passes_.back().cast = cast;
  passes_.push_back(PlainPass(channels_));
  *resized = false;
}

Status ImageChain::CastPlanes(NumberCast cast, Planes* planes) {
  const bool pixels = IsInteger(cast.from);
  const auto [least, largest] = pixels ? RangeOf(cast.from) : std::pair<double, double>();
  for (float& value : planes->values) {
    const double is = pixels ? std::clamp(std::nearbyint(static_cast<double>(value)), least, largest) : value;
    const StatusOr<double> made = CastNumber(is, cast.from, cast.to);
    if (!made.ok()) return absl::InvalidArgumentError(absl::StrCat("TypeCast: a value is ", made.status().message()));
    value = static_cast<float>(*made);
  }
  return absl::OkStatus();
}

StatusOr<Shape> ImageChain::ShapeFor(int64_t height, int64_t width) const {
  ImageSize size{height, width};
  for (const Pass& pass : passes_) {
    for (const Move& move : pass.moves) {
      ASSIGN_OR_RETURN(size, SizeAfter(move, size));
    }
    if (pass.paint.def != nullptr) {
      ASSIGN_OR_RETURN(size, SizeAfter({{}, pass.paint}, size));
    }
  }
  return planar_ ? Shape{channels_, size.height, size.width} : Shape{size.height, size.width, channels_};
}

Status ImageChain::Apply(const ImageView& source, const Draws& draws, ImageScratch* scratch, void* out) const {
  ImageView image = source;
  std::vector<Tap>&rows = scratch->rows, &columns = scratch->columns, &spare = scratch->spare;
  size_t stream = 0;
  for (size_t p = 0; p < passes_.size(); ++p) {
    const Pass& pass = passes_[p];
    Identity(image.height, &rows);
    Identity(image.width, &columns);
    for (const Move& made : pass.moves) {
      const Transform& move = made.transform;
      const int64_t height = static_cast<int64_t>(rows.size()), width = static_cast<int64_t>(columns.size());
      ASSIGN_OR_RETURN(const ImageSize size, SizeAfter(made, {height, width}));
      if (const VisionDef* def = made.declared.def) {
        SampleDraws numbers = DrawsOf(*def, draws, &stream);
        def->move(made.declared.fields, &numbers, {&rows, &columns, &spare});
      } else if (const auto* crop = std::get_if<RandomCrop>(&move)) {
        const uint64_t key = draws.streams[stream++];
        const uint64_t down = static_cast<uint64_t>(height + crop->top + crop->bottom - crop->height + 1);
        const uint64_t right = static_cast<uint64_t>(width + crop->left + crop->right - crop->width + 1);
        const int64_t top = static_cast<int64_t>(UniformIntAt(draws.seed, key, 2 * draws.index, down));
        const int64_t left = static_cast<int64_t>(UniformIntAt(draws.seed, key, 2 * draws.index + 1, right));
        Window(top - crop->top, size.height, &rows, &spare);
        Window(left - crop->left, size.width, &columns, &spare);
      } else if (const auto* flip = std::get_if<RandomHorizontalFlip>(&move)) {
        const uint64_t key = draws.streams[stream++];
        if (UniformAt(draws.seed, key, draws.index) < flip->prob) std::reverse(columns.begin(), columns.end());
      } else if (std::holds_alternative<CenterCrop>(move)) {
        Window((height - size.height) / 2, size.height, &rows, &spare);
        Window((width - size.width) / 2, size.width, &columns, &spare);
      } else if (height != size.height || width != size.width) {
        Interpolate(size.height, &rows, &spare);
        Interpolate(size.width, &columns, &spare);
      }
    }
    const bool last = p + 1 == passes_.size();
    Planes* between = &scratch->between[p & 1];
    if (!last) between->Resize(image.channels, static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns.size()));
    const Target target =
        last ? Target{out, out_.dtype, planar_} : Target{between->values.data(), DType::kF32, /*planar=*/true};
    RunPass(image, pass.scale, pass.shift, image.dtype == DType::kU8 ? LoadLine<uint8_t> : LoadLine<float>, scratch,
            target);
    if (pass.paint.def != nullptr) {
      RoundPixels(pass.bound, between);  // each transform of an image of integers gets integers
      SampleDraws numbers = DrawsOf(*pass.paint.def, draws, &stream);
      pass.paint.def->paint(pass.paint.fields, pass.bound, &numbers, *between, &scratch->painted);
      std::swap(*between, scratch->painted);
    }
    if (pass.cast.from != pass.cast.to) RETURN_IF_ERROR(CastPlanes(pass.cast, between));
    image = ImageView{between->values.data(), DType::kF32, between->height, between->width, between->channels,
                      /*planar=*/true};
  }
  return absl::OkStatus();
}

}  // namespace mslua::data
