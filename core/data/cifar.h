// The files of CIFAR-10 and CIFAR-100 (A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009).
// Binary version: records of one label byte (CIFAR-100: coarse, fine) and 3072 bytes, the red, green and blue planes of
// 32x32 pixels. Python version: a pickled dictionary that holds the same planes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/sources/define.h"

namespace mslua::data {

// What tells the two datasets apart.
struct CifarFlavour {
  const char* dataset;                   // the user's name
  const char* version;                   // the file to download, by its name on the official page
  const char* make;                      // the name for `mslua data make`; null: there is no stand-in
  std::vector<std::string> folders;      // subfolders that the download unpacks to
  std::vector<std::string> train, test;  // files of the python version; the binary ones end in .bin
  struct Label {
    const char* column;
    const char* pickle_key;
    int classes;
  };
  std::vector<Label> labels;  // in the record's order
};

// Reads the fields dataset_dir and usage. `flavour` outlives the reader. Columns: image u8[32,32,3], then the labels,
// i32[].
StatusOr<std::unique_ptr<Reader>> OpenCifar(const CifarFlavour& flavour, const Fields& fields);

}  // namespace mslua::data
