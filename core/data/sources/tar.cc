// Tar archives of samples as the library WebDataset lays them out: members that follow each other under one name up to
// its first dot are one sample, "0007.jpg" and "0007.cls". Only headers are read when the source is opened. Formats:
// POSIX ustar and pax, GNU's long names and large sizes.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/base/round_up.h"
#include "core/data/decode.h"
#include "core/data/file.h"
#include "core/data/sources/define.h"
#include "core/json/json.h"

namespace mslua::data {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMaxName = 1 << 16;   // bytes of a long name or of pax records
constexpr int64_t kMaxLabel = 1 << 20;  // bytes of a label's member
constexpr int64_t kMaxImage = 1 << 30;
constexpr int64_t kMaxShards = 100'000;

// ---- Archives ------------------------------------------------------------------------------------------------------

struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;
  const char* kind = nullptr;  // what it is instead of a file with its bytes, "a link"; null: such a file
};

// A number of a header: octal digits, or big-endian bytes behind 0x80.
bool ParseNumber(const char* text, size_t width, int64_t* value) {
  *value = 0;
  if ((text[0] & 0x80) != 0) {
    for (size_t k = 1; k < width; ++k) {
      if (*value > (int64_t{1} << 54)) return false;
      *value = *value << 8 | static_cast<uint8_t>(text[k]);
    }
    return true;
  }
  size_t k = 0;
  while (k < width && text[k] == ' ') ++k;
  for (; k < width && text[k] >= '0' && text[k] <= '7'; ++k) *value = *value * 8 + (text[k] - '0');
  return k == width || text[k] == ' ' || text[k] == '\0';
}

absl::string_view Text(const char* field, size_t width) { return {field, strnlen(field, width)}; }

// The members of an archive that are files, or stand for files, one after another.
class TarScanner {
 public:
  explicit TarScanner(const InputFile& file) : file_(file) {}

  // False at the end: two blocks of zeros, behind which there are zeros alone.
  StatusOr<bool> Next(TarMember* member) {
    std::string long_name;
    int64_t long_size = -1;
    *member = TarMember();
    while (at_ < file_.size()) {
      char header[kBlock];
      if (file_.size() - at_ < kBlock) return Damaged("it is truncated");
      RETURN_IF_ERROR(file_.Read(at_, kBlock, header));
      if (IsZero(header)) {
        RETURN_IF_ERROR(CheckEnd());
        return false;
      }
      int64_t size = 0, sum = 0;
      if (!ParseNumber(header + 148, 8, &sum) || sum != Sum(header)) {
        if (at_ == 0 && IsCompressed(header))
          return absl::DataLossError(absl::StrCat(
              file_.path(), " is compressed, expected a plain tar archive; fix: gunzip, unxz, bunzip2 or unzstd"));
        return Damaged("its header is damaged");
      }
      if (!ParseNumber(header + 124, 12, &size)) return Damaged("its size is damaged");
      const char type = header[156];
      const bool extension = type == 'x' || type == 'g' || type == 'L' || type == 'K';
      if (!extension && long_size >= 0) size = long_size;
      const int64_t data = at_ + kBlock;
      if (size < 0 || size > file_.size() - data) return Damaged("it is truncated");
      at_ = data + RoundUp(size, kBlock);
      if (extension) {
        RETURN_IF_ERROR(ReadExtension(type, data, size, &long_name, &long_size, &member->kind));
        continue;
      }
      if (type == '1' || type == '2') member->kind = "a link";
      if (type == 'S') member->kind = "a sparse file";
      if (type == 'M') member->kind = "a part of a file";
      if (type == '0' || type == '\0' || type == '7' || member->kind != nullptr) {
        const bool ustar = std::memcmp(header + 257, "ustar\0", 6) == 0;
        const absl::string_view prefix = ustar ? Text(header + 345, 155) : "";
        member->name =
            !long_name.empty() ? long_name : absl::StrCat(prefix, prefix.empty() ? "" : "/", Text(header, 100));
        member->offset = data;
        member->size = size;
        return true;
      }
      long_name.clear();
      long_size = -1;
      member->kind = nullptr;
    }
    return Damaged("the archive has no end, two blocks of zeros: it is truncated; copy or make it again");
  }

 private:
  static bool IsZero(const char* block) {
    return std::all_of(block, block + kBlock, [](char c) { return c == 0; });
  }

  // By the first bytes of gzip, xz, bzip2 and zstd.
  static bool IsCompressed(const char* header) {
    const absl::string_view start(header, 6);
    for (const char* magic : {"\x1f\x8b", "\xfd\x37zXZ", "BZh", "\x28\xb5\x2f\xfd"}) {
      if (absl::StartsWith(start, magic)) return true;
    }
    return false;
  }

  // at_ is the first block of zeros.
  Status CheckEnd() {
    char block[kBlock];
    int64_t zeros = 0;
    for (; at_ < file_.size(); at_ += kBlock, ++zeros) {
      if (file_.size() - at_ < kBlock) return Damaged("it is truncated");
      RETURN_IF_ERROR(file_.Read(at_, kBlock, block));
      if (IsZero(block)) continue;
      return Damaged(
          "data stand behind the archive's end. If it is several archives that were joined, give them one by one, or "
          "make one of them: `tar --concatenate --file=A.tar B.tar`, or unpack it with `tar -xif` and pack it again");
    }
    if (zeros >= 2) return absl::OkStatus();
    return Damaged("the archive ends after one block of zeros, expected two: it is truncated; copy or make it again");
  }

  Status Damaged(const char* what) const {
    return absl::DataLossError(absl::StrCat(file_.path(), ", member at byte ", at_, ": ", what));
  }

  static int64_t Sum(const char* header) {
    int64_t sum = 8 * ' ';  // the sum's own field counts as spaces
    for (int k = 0; k < kBlock; ++k) sum += k >= 148 && k < 156 ? 0 : static_cast<uint8_t>(header[k]);
    return sum;
  }

  // A long name or pax records, for the next member.
  Status ReadExtension(char type, int64_t data, int64_t size, std::string* name, int64_t* long_size,
                       const char** kind) const {
    if (type == 'K' || type == 'g') return absl::OkStatus();  // of a link; of all members: no names
    if (size > kMaxName) return Damaged("its name is too long");
    std::string text(static_cast<size_t>(size), '\0');
    RETURN_IF_ERROR(file_.Read(data, size, &text[0]));
    if (type == 'L') {
      *name = std::string(Text(text.data(), text.size()));
      return absl::OkStatus();
    }
    absl::string_view rest = text;  // "27 path=...\n"
    while (!rest.empty()) {
      const size_t space = rest.find(' ');
      size_t length = 0;
      if (space == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, space), &length) ||
          length <= space + 1 || length > rest.size())
        return Damaged("its pax records are damaged");
      const absl::string_view record = rest.substr(space + 1, length - space - 2);
      if (absl::StartsWith(record, "GNU.sparse.")) *kind = "a sparse file";
      if (absl::StartsWith(record, "GNU.sparse.name=")) *name = std::string(record.substr(16));
      if (absl::StartsWith(record, "path=") && *kind == nullptr) *name = std::string(record.substr(5));
      if (absl::StartsWith(record, "size=") && (!absl::SimpleAtoi(record.substr(5), long_size) || *long_size < 0))
        return Damaged("its pax records are damaged");
      rest.remove_prefix(length);
    }
    return absl::OkStatus();
  }

  const InputFile& file_;
  int64_t at_ = 0;
};

// ---- Shards --------------------------------------------------------------------------------------------------------

// "a-{00..03}.tar" names four shards.
StatusOr<std::vector<std::string>> ExpandBraces(const std::string& pattern) {
  const size_t open = pattern.find('{'), dots = pattern.find("..", open), close = pattern.find('}', open);
  if (open == std::string::npos || close == std::string::npos || dots > close) return std::vector<std::string>{pattern};
  const std::string first = pattern.substr(open + 1, dots - open - 1),
                    last = pattern.substr(dots + 2, close - dots - 2);
  int64_t begin = 0, end = 0;
  if (!absl::SimpleAtoi(first, &begin) || !absl::SimpleAtoi(last, &end) || begin < 0 || end < begin ||
      end - begin >= kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("TarDataset: dataset_files: expected {FIRST..LAST} of rising numbers, got '", pattern, "'"));
  }
  std::vector<std::string> paths;
  for (int64_t k = begin; k <= end; ++k) {
    std::string number = absl::StrCat(k);
    if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
    paths.push_back(pattern.substr(0, open) + number + pattern.substr(close + 1));
  }
  return paths;
}

StatusOr<std::vector<std::string>> ListShards(const std::vector<std::string>& names) {
  std::vector<std::string> shards;
  for (const std::string& name : names) {
    if (!IsFolder(name)) {
      ASSIGN_OR_RETURN(const auto paths, ExpandBraces(name));
      shards.insert(shards.end(), paths.begin(), paths.end());
      continue;
    }
    ASSIGN_OR_RETURN(const auto files, ListFolder(name));
    for (const std::string& file : files) {
      if (absl::EndsWith(file, ".tar")) shards.push_back(absl::StrCat(name, "/", file));
    }
  }
  for (const std::string& shard : shards) {
    if (!IsFile(shard)) return absl::NotFoundError(absl::StrCat("TarDataset: no file '", shard, "'"));
  }
  if (shards.empty())
    return absl::NotFoundError(absl::StrCat("TarDataset: no .tar file in '", absl::StrJoin(names, "', '"), "'"));
  return shards;
}

// An ending as users write it, "cls", ".cls" or " CLS".
std::string Ending(absl::string_view text) {
  return absl::AsciiStrToLower(absl::StripPrefix(absl::StripAsciiWhitespace(text), "."));
}

// ---- The source ----------------------------------------------------------------------------------------------------

class TarReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
    auto reader = std::unique_ptr<TarReader>(new TarReader);
    for (absl::string_view ending : absl::StrSplit(fields.String("image"), ';'))
      reader->image_endings_.push_back(Ending(ending));
    reader->label_ending_ = Ending(fields.String("label"));
    reader->label_key_ = fields.String("label_key");
    const bool json = absl::EndsWith(reader->label_ending_, "json");
    if (json == reader->label_key_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("TarDataset: label_key: expected ",
                                                     json ? "the key of the label" : "none", " for a label of ending ",
                                                     reader->label_ending_, ", got \"", reader->label_key_, "\""));
    }
    reader->columns_ = {{"image", {DType::kU8, {-1, -1, 3}}}, {"label", {DType::kI32, {}}}};
    ASSIGN_OR_RETURN(const auto shards, ListShards(fields.Strings("dataset_files")));
    RETURN_IF_ERROR(reader->AddShards(shards));
    reader->size_ = static_cast<int64_t>(reader->samples_.size());
    if (reader->size_ == 0)
      return absl::DataLossError(
          absl::StrCat("TarDataset: no sample in ", shards[0], shards.size() > 1 ? ", ..." : ""));
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const Sample& sample = samples_[static_cast<size_t>(i)];
    const InputFile& shard = *shards_[sample.shard];
    RETURN_IF_ERROR(ReadLabel(sample, i, buffers));
    buffers->bytes.resize(static_cast<size_t>(sample.image_size));
    RETURN_IF_ERROR(shard.Read(sample.image, sample.image_size, buffers->bytes.data()));
    int64_t height = 0, width = 0;
    const Status status = DecodeImage(buffers->bytes, &buffers->pixels, &height, &width);
    if (!status.ok()) return absl::DataLossError(absl::StrCat(Where(i), ": its image ", status.message()));
    row[0] = RawColumn{buffers->pixels.data(), {DType::kU8, {height, width, 3}}};
    row[1] = RawColumn{buffers->ints.data(), columns_[1].type};
    return absl::OkStatus();
  }

  void ReadAhead(int64_t i) const override {
    const Sample& sample = samples_[static_cast<size_t>(i)];
    shards_[sample.shard]->ReadAhead(sample.image, sample.image_size);
  }

  std::string Where(int64_t i) const override {
    const Sample& sample = samples_[static_cast<size_t>(i)];
    return absl::StrCat(shards_[sample.shard]->path(), ", sample '", sample.key, "'");
  }

 private:
  struct Sample {
    size_t shard = 0;
    std::string key;
    int64_t image = -1, image_size = 0;  // offset; -1: the sample has no such member
    int64_t label = -1, label_size = 0;
  };

  // Reads the headers of several shards at once: a disk answers many requests in the time of one.
  Status AddShards(const std::vector<std::string>& paths) {
    constexpr size_t kThreads = 8;
    for (const std::string& path : paths) {
      ASSIGN_OR_RETURN(auto file, InputFile::Open(path));
      shards_.push_back(std::move(file));
    }
    std::vector<std::vector<Sample>> found(paths.size());
    std::vector<Status> results(paths.size());
    std::atomic<size_t> next{0};
    const auto scan = [&] {
      for (size_t s = next++; s < paths.size(); s = next++) results[s] = ScanShard(s, &found[s]);
    };
    std::vector<std::thread> threads;
    for (size_t t = 1; t < std::min(kThreads, paths.size()); ++t) threads.emplace_back(scan);
    scan();
    for (std::thread& thread : threads) thread.join();
    for (size_t s = 0; s < paths.size(); ++s) {
      RETURN_IF_ERROR(results[s]);
      samples_.insert(samples_.end(), std::make_move_iterator(found[s].begin()),
                      std::make_move_iterator(found[s].end()));
    }
    return absl::OkStatus();
  }

  Status ScanShard(size_t shard, std::vector<Sample>* samples) const {
    TarScanner scanner(*shards_[shard]);
    Sample sample;
    sample.shard = shard;
    TarMember member;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, scanner.Next(&member));
      const size_t file = member.name.rfind('/') + 1;                 // npos + 1 is 0
      if (more && member.name.compare(file, 2, "._") == 0) continue;  // attributes, which macOS packs beside a file
      const size_t dot = member.name.find('.', file);
      const std::string key = member.name.substr(0, dot);
      if ((!more || key != sample.key) && !sample.key.empty()) RETURN_IF_ERROR(AddSample(sample, samples));
      if (!more) return absl::OkStatus();
      if (key != sample.key) sample = {sample.shard, key};
      if (dot != std::string::npos) RETURN_IF_ERROR(AddMember(member, member.name.substr(dot + 1), &sample));
    }
  }

  Status AddMember(const TarMember& member, const std::string& name_ending, Sample* sample) const {
    const std::string ending = absl::AsciiStrToLower(name_ending);
    const bool image = std::find(image_endings_.begin(), image_endings_.end(), ending) != image_endings_.end();
    if (!image && ending != label_ending_) return absl::OkStatus();
    if (member.kind != nullptr) {
      return absl::DataLossError(
          absl::StrCat(shards_[sample->shard]->path(), ", member '", member.name, "' is ", member.kind,
                       ", expected a file; pack with `tar --format=ustar --dereference --hard-dereference`"));
    }
    int64_t* offset = image ? &sample->image : &sample->label;
    if (*offset >= 0) {
      return absl::DataLossError(absl::StrCat(shards_[sample->shard]->path(), ", sample '", sample->key,
                                              "' has two members for the ", image ? "image" : "label"));
    }
    if (member.size > (image ? kMaxImage : kMaxLabel)) {
      return absl::DataLossError(
          absl::StrCat(shards_[sample->shard]->path(), ", member '", member.name, "' has ", member.size, " bytes"));
    }
    *offset = member.offset;
    (image ? sample->image_size : sample->label_size) = member.size;
    return absl::OkStatus();
  }

  Status AddSample(const Sample& sample, std::vector<Sample>* samples) const {
    if (sample.image < 0 && sample.label < 0) return absl::OkStatus();  // other files
    if (sample.image < 0 || sample.label < 0) {
      const std::string wanted = sample.image < 0 ? absl::StrJoin(image_endings_, ", .") : label_ending_;
      return absl::DataLossError(absl::StrCat(shards_[sample.shard]->path(), ", sample '", sample.key,
                                              "' has no member .", wanted,
                                              " beside its other one; the members of a sample follow each other"));
    }
    samples->push_back(sample);
    return absl::OkStatus();
  }

  // The label's number into buffers->ints.
  Status ReadLabel(const Sample& sample, int64_t i, ReadBuffers* buffers) const {
    std::string text(static_cast<size_t>(sample.label_size), '\0');
    RETURN_IF_ERROR(shards_[sample.shard]->Read(sample.label, sample.label_size, &text[0]));
    buffers->ints.resize(1);
    const auto bad = [&](absl::string_view problem) {
      return absl::DataLossError(absl::StrCat(Where(i), ": its .", label_ending_, " ", problem));
    };
    if (label_key_.empty()) {
      if (absl::SimpleAtoi(absl::StripAsciiWhitespace(text), buffers->ints.data())) return absl::OkStatus();
      return bad(absl::StrCat("is '", text.substr(0, 20), "', expected an integer"));
    }
    const StatusOr<Json> json = ParseJson(text);
    if (!json.ok()) return bad(absl::StrCat("is no JSON: ", json.status().message()));
    const auto it = json->is_object() ? json->find(label_key_) : json->end();
    if (it == json->end()) return bad(absl::StrCat("has no key '", label_key_, "'"));
    const bool small = it->is_number_integer() && (!it->is_number_unsigned() || it->get<uint64_t>() <= INT32_MAX);
    if (!small || it->get<int64_t>() < INT32_MIN || it->get<int64_t>() > INT32_MAX)
      return bad(absl::StrCat(label_key_, " is ", ShowJson(*it), ", expected an integer"));
    buffers->ints[0] = it->get<int32_t>();
    return absl::OkStatus();
  }

  std::vector<std::string> image_endings_;
  std::string label_ending_, label_key_;
  std::vector<std::unique_ptr<InputFile>> shards_;
  std::vector<Sample> samples_;
};

}  // namespace

MSLUA_SOURCE(tar) {
  SourceDef def("tar", "TarDataset");
  def.title = "tar shards";
  def.pictures = true;
  def.doc =
      "Samples of tar archives in WebDataset's layout, `0007.jpg` beside `0007.cls`: image uint8 [h, w, 3], label "
      "int32 []. `TarDataset(\"train-{000..146}.tar\", { shuffle = true })`, or `{ label = \"json\", label_key = "
      "\"class\" }`.";
  def.fields = {PathField("dataset_files",
                          "an archive, a folder of archives, numbered archives as a-{000..146}.tar, or a list of them",
                          FieldType::kPaths),
                {"image", FieldType::kString, "endings of the member with the JPEG or PNG image", "jpg;jpeg;png"},
                {"label", FieldType::kString, "ending of the member with the label, an integer", "cls"},
                {"label_key", FieldType::kString, "the label's key where its member is JSON"}};
  def.open = TarReader::Open;
  def.fits = [](const std::string& path) { return IsFolder(path) || absl::EndsWith(path, ".tar"); };
  def.expects = "tar shards";
  def.order = 1;
  return def;
}

}  // namespace mslua::data
