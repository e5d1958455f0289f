#include "core/data/derived.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/data/cache.h"
#include "core/data/identity.h"
#include "core/data/part.h"

namespace mslua::data {

namespace {

using Parts = std::vector<std::unique_ptr<Part>>;

// What readers of several parts share.
class PartsReader : public Reader {
 public:
  explicit PartsReader(Parts parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      const auto& notices = part->pipeline().notices();
      notices_.insert(notices_.end(), notices.begin(), notices.end());
    }
  }

  bool bound_to_thread() const override {
    return Any([](const Pipeline& p) { return p.foreign(); });
  }
  bool runs_code() const override {
    return Any([](const Pipeline& p) { return p.runs_code(); });
  }
  std::vector<std::string> class_names() const override { return parts_[0]->pipeline().class_names(); }

 protected:
  template <class Test>
  bool Any(Test test) const {
    return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) { return test(part->pipeline()); });
  }

  Parts parts_;
};

class ZipReader : public PartsReader {
 public:
  explicit ZipReader(Parts parts) : PartsReader(std::move(parts)) {
    size_ = parts_[0]->size();
    for (const auto& part : parts_) {
      size_ = std::min(size_, part->size());
      columns_.insert(columns_.end(), part->columns().begin(), part->columns().end());
    }
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    auto& memory = PartMemory(parts_.size(), buffers);
    size_t column = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const size_t n = parts_[p]->columns().size();
      RETURN_IF_ERROR(parts_[p]->Read(i, memory[p].get(), row.subspan(column, n)));
      column += n;
    }
    return absl::OkStatus();
  }
  std::string Where(int64_t i) const override { return parts_[0]->Where(i); }
};

class ConcatReader : public PartsReader {
 public:
  explicit ConcatReader(Parts parts) : PartsReader(std::move(parts)) {
    columns_ = parts_[0]->columns();
    for (const auto& part : parts_) {
      ends_.push_back(size_ += part->size());
      for (size_t k = 0; k < columns_.size(); ++k) {
        Shape& shape = columns_[k].type.shape;
        const Shape& other = part->columns()[k].type.shape;
        for (size_t d = 0; d < shape.size(); ++d) {
          if (shape[d] != other[d]) shape[d] = -1;
        }
      }
    }
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const size_t p = PartOf(i);
    return parts_[p]->Read(i - Begin(p), PartMemory(parts_.size(), buffers)[p].get(), row);
  }
  std::string Where(int64_t i) const override {
    const size_t p = PartOf(i);
    return parts_[p]->Where(i - Begin(p));
  }

 private:
  size_t PartOf(int64_t i) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  }
  int64_t Begin(size_t p) const { return p == 0 ? 0 : ends_[p - 1]; }

  std::vector<int64_t> ends_;  // of each part: the number of its last sample, plus 1
};

StatusOr<std::unique_ptr<Reader>> OpenZip(Parts parts) {
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const Column& column : parts[p]->columns()) {
      for (size_t q = 0; q < p; ++q) {
        for (const Column& before : parts[q]->columns()) {
          if (before.name == column.name)
            return absl::InvalidArgumentError(
                absl::StrCat("zip: two datasets have a column '", column.name, "': rename one, ds:rename"));
        }
      }
    }
  }
  return std::unique_ptr<Reader>(std::make_unique<ZipReader>(std::move(parts)));
}

std::string TypesOf(const Part& part) {
  std::string text;
  for (const Column& c : part.columns())
    absl::StrAppend(&text, text.empty() ? "" : ", ", c.name, " ", ToString(c.type));
  return text;
}

StatusOr<std::unique_ptr<Reader>> OpenConcat(Parts parts) {
  for (size_t p = 1; p < parts.size(); ++p) {
    bool alike = parts[p]->columns().size() == parts[0]->columns().size();
    for (size_t k = 0; alike && k < parts[p]->columns().size(); ++k) {
      const Column &a = parts[0]->columns()[k], &b = parts[p]->columns()[k];
      alike = a.name == b.name && a.type.dtype == b.type.dtype && a.type.rank() == b.type.rank();
    }
    if (!alike)
      return absl::InvalidArgumentError(absl::StrCat("concat: dataset ", p + 1, " has (", TypesOf(*parts[p]),
                                                     "), dataset 1 has (", TypesOf(*parts[0]),
                                                     "): expected the same columns: project and map make them so"));
    if (parts[p]->pipeline().class_names() != parts[0]->pipeline().class_names())
      return absl::InvalidArgumentError(absl::StrCat(
          "concat: dataset ", p + 1, " numbers other classes than dataset 1: give both the same class_names"));
  }
  return std::unique_ptr<Reader>(std::make_unique<ConcatReader>(std::move(parts)));
}

StatusOr<std::unique_ptr<Reader>> OpenDerived(const Source& source) {
  const std::string& kind = source.kind();
  Parts parts;
  for (size_t p = 0; p < source.parts().size(); ++p) {
    auto part = Part::Open(*source.parts()[p], kind.c_str());
    if (!part.ok() && source.parts().size() > 1)
      return Status(part.status().code(), absl::StrCat(part.status().message(), " (dataset ", p + 1, ")"));
    ASSIGN_OR_RETURN(auto opened, std::move(part));
    parts.push_back(std::move(opened));
  }
  if (kind == "zip") return OpenZip(std::move(parts));
  if (kind == "concat") return OpenConcat(std::move(parts));
  const auto folder = source.fields().find("folder");
  if (folder == source.fields().end() || std::get<std::string>(folder->second).empty())
    return OpenMemoryCache(std::move(parts[0]));
  return OpenFolderCache(std::move(parts[0]), std::get<std::string>(folder->second), IdentityOf(*source.parts()[0]));
}

}  // namespace

Source ZipSource(std::vector<std::shared_ptr<const Dataset>> parts) {
  return Source("zip", {}, std::move(parts), OpenDerived);
}
Source ConcatSource(std::vector<std::shared_ptr<const Dataset>> parts) {
  return Source("concat", {}, std::move(parts), OpenDerived);
}
Source CacheSource(std::shared_ptr<const Dataset> part, const std::string& folder) {
  return Source("cache", {{"folder", folder}}, {std::move(part)}, OpenDerived);
}

}  // namespace mslua::data
