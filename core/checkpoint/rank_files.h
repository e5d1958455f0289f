// Finds the files of a checkpoint whose ranks saved into directories of their own.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/base/input_file.h"
#include "core/base/status.h"
#include "core/checkpoint/manifest.h"

namespace mslua::checkpoint {

class RankFiles {
 public:
  // `manifest`, with the text `text`, is in the folder `path`. The manifest must outlive this.
  RankFiles(const std::string& path, const Manifest& manifest, const std::string& text);

  // Opens file `i` of the manifest: in `path`; else by the path that led from this folder to the file's when they were
  // written; else by the file's absolute path. A folder elsewhere must have the same manifest. NOT_FOUND: nowhere.
  StatusOr<std::unique_ptr<InputFile>> Open(size_t i);

 private:
  // Whether `folder` belongs to the same checkpoint; reads the end of its manifest once.
  bool HasThisManifest(const std::string& folder);

  const std::string path_;
  const Manifest& manifest_;
  const std::string end_;              // of the manifest, with its digest
  const int64_t size_;                 // of the manifest, in bytes
  std::string home_;                   // where this folder was when it was written; empty: unknown
  std::map<std::string, bool> known_;  // folders that HasThisManifest has looked at
};

}  // namespace mslua::checkpoint
