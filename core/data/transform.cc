#include "core/data/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/data/cast.h"

namespace mslua::data {
namespace {

// Copies an image's planes [h,w] into pixels [h,w,c].
template <class T>
void Interleave(const T* planes, int64_t pixels, int64_t channels, T* out) {
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) out[i * channels + c] = planes[c * pixels + i];
  }
}

bool IsImage(const TensorType& type) { return type.rank() == 3 && type.shape[2] >= 1; }

// Whether a column has images [c,h,w] as it comes: those of arrays, or what another dataset has made with HWC2CHW.
bool ComesInPlanes(const TensorType& type) {
  const auto channels = [](int64_t n) { return n == 1 || n == 3 || n == 4; };
  return type.rank() == 3 && channels(type.shape[0]) && type.shape[1] > 1 && type.shape[2] > 4;
}

// The transforms of numbers of type `type` without casts to the type that they have there: such numbers stay as they
// are, an int64 that no double holds as well.
std::vector<Transform> WithoutCastsToItself(std::vector<Transform> transforms, DType type) {
  std::vector<Transform> rest;
  for (Transform& transform : transforms) {
    const auto* cast = std::get_if<TypeCast>(&transform);
    if (cast != nullptr && cast->dtype == type) continue;
    if (cast != nullptr) type = cast->dtype;
    if (std::holds_alternative<Rescale>(transform)) type = DType::kF32;
    rest.push_back(std::move(transform));
  }
  return rest;
}

}  // namespace

bool IsRandom(const Transform& transform) {
  const auto* vision = std::get_if<Vision>(&transform);
  const VisionDef* def = vision == nullptr ? nullptr : FindVision(vision->kind);
  return std::holds_alternative<RandomCrop>(transform) || std::holds_alternative<RandomHorizontalFlip>(transform) ||
         (def != nullptr && def->draws > 0);
}

bool ColumnChain::planar() const {
  return ComesInPlanes(in_) || std::any_of(transforms_.begin(), transforms_.end(),
                                           [](const Transform& t) { return std::holds_alternative<HWC2CHW>(t); });
}

StatusOr<ColumnChain> ColumnChain::Make(const Column& column, std::vector<Transform> transforms,
                                        const std::vector<std::string>& places) {
  ColumnChain chain;
  chain.name_ = column.name;
  chain.in_ = chain.out_ = column.type;
  const std::string what = absl::StrCat("column '", column.name, "', ", ToString(column.type));
  bool vision = false;
  for (size_t i = 0; i < transforms.size(); ++i) {
    const Transform& transform = transforms[i];
    const std::string place = places.empty() ? absl::StrCat(column.name, "/", i) : places[i];
    if (IsRandom(transform)) chain.random_streams_.push_back(absl::StrCat("data/", place, "/", Name(transform)));
    vision |= ImageChain::IsVision(transform);
    if (ImageChain::IsVision(transform) && !IsImage(column.type)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(transform), ": expected an image [height,width,channels], got ", what));
    }
    // The values of planes can be changed, but not their places.
    if (ImageChain::IsVision(transform) && !std::holds_alternative<Normalize>(transform) &&
        ComesInPlanes(column.type)) {
      return absl::InvalidArgumentError(absl::StrCat(Name(transform),
                                                     ": expected an image [height,width,channels], got ", what,
                                                     ", [channels,height,width]; fix: put HWC2CHW behind it"));
    }
  }
  for (const Transform& transform : transforms) {
    if (const auto* one_hot = std::get_if<OneHot>(&transform)) {
      if (!IsInteger(chain.out_.dtype) || IsImage(column.type) || chain.out_.rank() > chain.in_.rank()) {
        return absl::InvalidArgumentError(absl::StrCat("OneHot: expected integer labels, got ", what));
      }
      if (one_hot->num_classes < 1 || one_hot->num_classes > 1 << 24) {
        return absl::InvalidArgumentError(
            absl::StrCat("OneHot: expected num_classes of at least 1, got ", one_hot->num_classes));
      }
      chain.out_.shape.push_back(one_hot->num_classes);
    } else if (const auto* cast = std::get_if<TypeCast>(&transform)) {
      chain.out_.dtype = cast->dtype;
    } else if (std::holds_alternative<Rescale>(transform)) {
      chain.out_.dtype = DType::kF32;
    }
  }
  if (vision ||
      (!transforms.empty() && IsImage(column.type) && column.type.dtype == DType::kU8 && chain.out_.rank() == 3)) {
    TensorType type = column.type;
    std::vector<Transform> all = transforms;
    chain.planes_ = vision && ComesInPlanes(column.type);
    if (chain.planes_) {  // as an image whose result has planes too
      type.shape = {type.shape[1], type.shape[2], type.shape[0]};
      all.push_back(HWC2CHW{});
    }
    ASSIGN_OR_RETURN(ImageChain image, ImageChain::Make(type, all));
    chain.out_ = image.out();
    chain.image_ = std::make_shared<const ImageChain>(std::move(image));
  }
  chain.transforms_ =
      chain.image_ == nullptr ? WithoutCastsToItself(std::move(transforms), column.type.dtype) : std::move(transforms);
  return chain;
}

// Images are computed in float32.
Status ColumnChain::CheckPixel(double value, DType type) const {
  const bool whole = IsInteger(type) && std::abs(value) > 0x1p24;
  const bool large = std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max();
  if (!whole && !large) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "column '%s' has the value %.17g in an image, and images are computed in float32, which %s", name_, value,
      large ? "has no numbers that large" : "does not have all whole numbers from 16777216 on"));
}

StatusOr<TensorType> ColumnChain::TypeFor(const RawColumn& raw) const {
  TensorType type = out_;
  if (image_ != nullptr) {
    const int64_t row = planes_ ? 1 : 0;  // the dimension
    ASSIGN_OR_RETURN(type.shape, image_->ShapeFor(raw.type.shape[row], raw.type.shape[row + 1]));
    return type;
  }
  for (size_t d = 0; d < raw.type.shape.size(); ++d) type.shape[d] = raw.type.shape[d];
  return type;
}

Status ColumnChain::Apply(const RawColumn& raw, const Draws& draws, ImageScratch* scratch, const TensorType& want,
                          void* out) const {
  bool same = raw.type.dtype == in_.dtype && raw.type.rank() == in_.rank();
  for (int64_t d = 0; same && d < in_.rank(); ++d) {
    same = in_.shape[d] < 0 || in_.shape[d] == raw.type.shape[d];
  }
  if (!same) {
    const bool shapes = raw.type.dtype == in_.dtype && raw.type.rank() == in_.rank();
    return absl::InvalidArgumentError(absl::StrCat("column '", name_, "' is ", ToString(raw.type), ", expected ",
                                                   ToString(in_), " as in the first sample",
                                                   shapes ? "; samples of several shapes: padded_batch or "
                                                            "bucket_batch_by_length"
                                                          : ""));
  }
  ASSIGN_OR_RETURN(const TensorType type, TypeFor(raw));
  if (type.shape != want.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shapes differ within a batch: column '", name_, "' is ", ToString(type), ", the first sample ", ToString(want),
        in_.rank() == 3 ? "; map a Resize or CenterCrop onto it" : "; use padded_batch or bucket_batch_by_length"));
  }
  if (image_ != nullptr) {
    const Shape& shape = raw.type.shape;
    ImageView image{raw.data, raw.type.dtype, shape[0], shape[1], shape[2], raw.planar};
    if (planes_) image = {raw.data, raw.type.dtype, shape[1], shape[2], shape[0], /*planar=*/true};
    if (image.dtype != DType::kU8 && image.dtype != DType::kF32) {
      const int64_t n = raw.type.elements();
      scratch->source.resize(n);
      for (int64_t i = 0; i < n; ++i) {
        const double value = LoadAsDouble(raw.type.dtype, raw.data, i);
        RETURN_IF_ERROR(CheckPixel(value, raw.type.dtype));
        scratch->source[i] = static_cast<float>(value);
      }
      image.data = scratch->source.data();
      image.dtype = DType::kF32;
    }
    return image_->Apply(image, draws, scratch, out);
  }
  if (!transforms_.empty()) return ApplyNumbers(raw, out);
  if (raw.planar) {
    Interleave(static_cast<const uint8_t*>(raw.data), raw.type.shape[0] * raw.type.shape[1], raw.type.shape[2],
               static_cast<uint8_t*>(out));
  } else if (out != raw.data) {
    std::memcpy(out, raw.data, static_cast<size_t>(raw.type.bytes()));
  }
  return absl::OkStatus();
}

// Value by value through double. OneHot spreads a value over a new last dimension; what follows it applies
// to the zeros too: hence `value` at `place` and `elsewhere`.
Status ColumnChain::ApplyNumbers(const RawColumn& raw, void* out) const {
  const int64_t n = raw.type.elements();
  const int64_t classes = out_.rank() > in_.rank() ? out_.shape.back() : 1;
  for (int64_t i = 0; i < n; ++i) {
    double value = LoadAsDouble(raw.type.dtype, raw.data, i), elsewhere = 0;
    int64_t place = 0;
    DType type = raw.type.dtype;
    for (const Transform& transform : transforms_) {
      if (const auto* rescale = std::get_if<Rescale>(&transform)) {
        type = DType::kF32;
        value = value * rescale->scale + rescale->shift;
        elsewhere = elsewhere * rescale->scale + rescale->shift;
      } else if (const auto* cast = std::get_if<TypeCast>(&transform)) {
        for (double* v : {&value, &elsewhere}) {
          const StatusOr<double> made = CastNumber(*v, type, cast->dtype);
          if (!made.ok())
            return absl::InvalidArgumentError(
                absl::StrCat("TypeCast: column '", name_, "' is ", made.status().message()));
          *v = *made;
        }
        type = cast->dtype;
      } else if (const auto* one_hot = std::get_if<OneHot>(&transform)) {
        if (value < 0 || value >= static_cast<double>(one_hot->num_classes)) {
          return absl::InvalidArgumentError(absl::StrCat("OneHot: column '", name_, "' is ", value, ", expected 0..",
                                                         one_hot->num_classes - 1, " (num_classes)"));
        }
        place = static_cast<int64_t>(value);
        value = 1;
        elsewhere = 0;
      }
    }
    for (int64_t k = 0; k < classes; ++k) {
      StoreDouble(out_.dtype, out, i * classes + k, k == place ? value : elsewhere);
    }
  }
  return absl::OkStatus();
}

}  // namespace mslua::data
