// Tensors as NumPy prints them, with the commas of the tutorials: array2string with separator ', '.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/print_options.h"
#include "core/base/tensor.h"
#include "core/base/terminal.h"

namespace mslua {
namespace {

constexpr int kLineWidth = 75, kLeastWidth = 20;

struct Setting {
  absl::Mutex mutex;
  PrintOptions options ABSL_GUARDED_BY(mutex);
};
Setting& TheSetting() {
  static Setting* const setting = new Setting;
  return *setting;
}

// The shortest digits that read back as the element, in one of the two forms, at most `precision` after the point.
std::string Digits(DType dtype, double value, std::chars_format form, int precision) {
  char buffer[1024];
  const bool narrow = dtype != DType::kF64;
  const auto shortest = narrow ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value), form)
                               : std::to_chars(buffer, buffer + sizeof buffer, value, form);
  std::string text(buffer, shortest.ptr);
  const size_t point = text.find('.'), exponent = text.find('e');
  const size_t end = exponent == std::string::npos ? text.size() : exponent;
  if (point != std::string::npos && end - point - 1 > precision) {
    const auto rounded = narrow
                             ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value), form, precision)
                             : std::to_chars(buffer, buffer + sizeof buffer, value, form, precision);
    text.assign(buffer, rounded.ptr);
    if (precision == 0) text.insert(std::min(text.find('e'), text.size()), ".");
    const size_t e = std::min(text.find('e'), text.size());
    size_t last = e;
    while (text[last - 1] == '0') --last;
    text.erase(last, e - last);
  } else if (point == std::string::npos) {
    text.insert(end, ".");
  }
  return text;
}

// One way to write all elements, so that columns align.
class Formatter {
 public:
  Formatter(const TensorView& t, const std::vector<int64_t>& shown, const PrintOptions& options)
      : tensor_(t), precision_(options.precision) {
    if (!IsFloat(t.type.dtype)) {
      for (int64_t i : shown) width_ = std::max(width_, Plain(i).size());
      return;
    }
    double largest = 0, smallest = HUGE_VAL;
    for (int64_t i : shown) {
      const double a = std::fabs(At(i));
      if (!std::isfinite(a) || a == 0) continue;
      largest = std::max(largest, a);
      smallest = std::min(smallest, a);
    }
    const bool wide = largest > 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
    if (options.sci_mode.value_or(wide)) form_ = std::chars_format::scientific;
    size_t special = 0;
    for (int64_t i : shown) {
      const double v = At(i);
      if (!std::isfinite(v)) {
        special = std::max(special, Special(v).size());
        continue;
      }
      const std::string text = Digits(t.type.dtype, v, form_, precision_);
      const size_t point = text.find('.'), end = std::min(text.find('e'), text.size());
      left_ = std::max(left_, point);
      right_ = std::max(right_, end - point - 1);
      tail_ = std::max(tail_, text.size() - end);
    }
    width_ = std::max(left_ + 1 + right_ + tail_, special);
    if (left_ == 0) width_ = special;
  }

  std::string operator()(int64_t i) const {
    if (!IsFloat(tensor_.type.dtype)) return Pad(Plain(i));
    const double v = At(i);
    if (!std::isfinite(v)) return Pad(Special(v));
    const std::string text = Digits(tensor_.type.dtype, v, form_, precision_);
    const size_t point = text.find('.'), end = std::min(text.find('e'), text.size());
    std::string out = std::string(left_ - point, ' ') + text.substr(0, end);
    // Scientific mantissas fill up with zeros, plain fractions with spaces, as NumPy does.
    out.append(right_ - (end - point - 1), form_ == std::chars_format::scientific ? '0' : ' ');
    out += text.substr(end);
    return Pad(std::move(out));
  }

 private:
  double At(int64_t i) const { return LoadAsDouble(tensor_.type.dtype, tensor_.data, i); }
  static std::string Special(double v) { return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"; }
  std::string Plain(int64_t i) const {
    switch (tensor_.type.dtype) {
      case DType::kBool:
        return tensor_.as<uint8_t>()[i] ? "True" : "False";
      case DType::kI64:
        return absl::StrCat(tensor_.as<int64_t>()[i]);
      default:
        return absl::StrCat(static_cast<int64_t>(At(i)));
    }
  }
  std::string Pad(std::string text) const {
    if (text.size() < width_) text.insert(0, width_ - text.size(), ' ');
    return text;
  }

  const TensorView& tensor_;
  const int precision_;
  std::chars_format form_ = std::chars_format::fixed;
  size_t left_ = 0, right_ = 0, tail_ = 0, width_ = 0;
};

class Printer {
 public:
  Printer(const TensorView& t, const PrintOptions& options)
      : tensor_(t),
        edge_(options.edgeitems),
        summary_(t.type.elements() > options.threshold),
        width_(static_cast<size_t>(
            options.linewidth > 0 ? options.linewidth : std::max(ColumnsOf(STDOUT_FILENO, kLineWidth), kLeastWidth))),
        strides_(RowMajorStrides(t.type.shape)) {
    std::vector<int64_t> shown;
    Collect(0, 0, &shown);
    format_ = std::make_unique<Formatter>(t, shown, options);
  }

  // Dimension `d` from element `offset` on, indented to column `d`.
  std::string Text(int d, int64_t offset) const {
    const int64_t n = tensor_.type.shape[d];
    const int rank = static_cast<int>(tensor_.type.rank());
    if (d == rank - 1) return Row(d, offset);
    const std::string separator("," + std::string(rank - 1 - d, '\n') + std::string(d + 1, ' '));
    std::string out = "[";
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0) out += separator;
      if (Skips(n, i)) {
        out += "...";
        i = n - edge_ - 1;
        continue;
      }
      out += Text(d + 1, offset + i * strides_[d]);
    }
    return out + "]";
  }

 private:
  bool Skips(int64_t n, int64_t i) const { return summary_ && n > 2 * edge_ && i == edge_; }

  std::string Row(int d, int64_t offset) const {
    const int64_t n = tensor_.type.shape[d];
    std::string out = "[";
    size_t line = static_cast<size_t>(d) + 1;  // column that the line has reached
    for (int64_t i = 0; i < n; ++i) {
      std::string word = "...";
      if (Skips(n, i)) {
        i = n - edge_ - 1;
      } else {
        word = (*format_)(offset + i);
      }
      if (out.size() > 1) {
        out += ',';
        ++line;
        if (line + 1 + word.size() + (d + 1) > width_) {
          out += '\n' + std::string(d + 1, ' ');
          line = static_cast<size_t>(d) + 1;
        } else {
          out += ' ';
          ++line;
        }
      }
      out += word;
      line += word.size();
    }
    return out + "]";
  }

  void Collect(int d, int64_t offset, std::vector<int64_t>* shown) const {
    if (d == tensor_.type.rank()) {
      shown->push_back(offset);
      return;
    }
    const int64_t n = tensor_.type.shape[d];
    for (int64_t i = 0; i < n; ++i) {
      if (Skips(n, i)) i = n - edge_;
      Collect(d + 1, offset + i * strides_[d], shown);
    }
  }

  const TensorView& tensor_;
  const int64_t edge_;
  const bool summary_;
  const size_t width_;
  const Shape strides_;
  std::unique_ptr<Formatter> format_;
};

}  // namespace

PrintOptions GetPrintOptions() {
  Setting& setting = TheSetting();
  absl::MutexLock lock(&setting.mutex);
  return setting.options;
}

void SetPrintOptions(const PrintOptions& options) {
  Setting& setting = TheSetting();
  absl::MutexLock lock(&setting.mutex);
  setting.options = options;
}

std::string TensorText(const TensorView& tensor) {
  const PrintOptions options = GetPrintOptions();
  if (tensor.type.rank() == 0) {
    std::string text = Formatter(tensor, {0}, options)(0);
    if (text.back() == '.') text += '0';
    return text;
  }
  if (tensor.type.elements() == 0) return "[]";
  return Printer(tensor, options).Text(0, 0);
}

}  // namespace mslua
