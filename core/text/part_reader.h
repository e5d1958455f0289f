// Reads one JSON object of a tokenizer file that describes a part: {"type": "Lowercase"}. The first mistake is kept,
// with its place ("normalizer.normalizers[1].prepend"), and given by status(); a key that nobody asked for is a mistake
// too.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/json/json.h"

namespace mslua::text {

// The integer of 0..2^53 that a value is; -1: it is none.
int64_t CountOf(const Json& value);

class PartReader {
 public:
  PartReader(const Json& json, std::string place);

  const std::string& place() const { return place_; }
  // Of an error at `key`, or of the object itself when it is empty.
  Status Wrong(absl::string_view key, absl::string_view why) const;
  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  // The value of a key, null where it is absent or null.
  const Json* Get(const std::string& key);
  // Values with a default for an absent one. Those without a default are required.
  bool Bool(const std::string& key, bool fallback);
  int64_t Int(const std::string& key, int64_t fallback);
  std::string String(const std::string& key);
  std::string String(const std::string& key, const std::string& fallback);
  // One of the words.
  std::string Choice(const std::string& key, const std::vector<std::string>& words, const std::string& fallback);
  // A list; empty where it is absent.
  const Json& List(const std::string& key);
  // An object; empty where it is absent.
  const Json& Object(const std::string& key);
  // ["[CLS]", 101]
  std::pair<std::string, int64_t> TokenAndId(const std::string& key);
  // Keys that change no ids, or are read elsewhere.
  void Ignore(std::initializer_list<const char*> keys);

  // OK, or the first mistake.
  const Status& mistake() const { return status_; }
  // The same when everything has been read: with keys that nobody asked for.
  Status status() const;

  // Of decoders: what comes before has joined all tokens into one.
  bool joined = false;

 private:
  const Json& json_;
  std::string place_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace mslua::text
