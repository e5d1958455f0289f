#include "lua/tokenizer_lua.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/data/file.h"
#include "core/text/make_files.h"
#include "core/text/tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "lua/object.h"
#include "lua/session.h"

namespace mslua {
namespace {

using text::DecodeStream;
using text::Tokenizer;

// A tokenizer, and the pieces that this Lua state has encoded.
struct TokenizerHandle {
  std::shared_ptr<const Tokenizer> tokenizer;
  text::PieceCache cache;
};

}  // namespace

template <>
struct KindName<std::shared_ptr<TokenizerHandle>> {
  static constexpr const char* value = "Tokenizer";
};
template <>
struct KindName<std::shared_ptr<DecodeStream>> {
  static constexpr const char* value = "DecodeStream";
};

namespace {

StatusOr<TokenizerHandle*> ReadTokenizer(lua_State* L, int index) {
  auto* found = ToObject<std::shared_ptr<TokenizerHandle>>(L, index);
  if (found != nullptr) return found->get();
  return absl::InvalidArgumentError(absl::StrCat("expected a Tokenizer, got ", Describe(L, index)));
}

// A string with any bytes in it.
StatusOr<absl::string_view> ReadText(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) != LUA_TSTRING)
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected a string, got ", Describe(L, index)));
  size_t size = 0;
  const char* data = lua_tolstring(L, index, &size);
  return absl::string_view(data, size);
}

void PushIds(lua_State* L, const std::vector<int32_t>& ids) {
  lua_createtable(L, static_cast<int>(ids.size()), 0);
  for (size_t k = 0; k < ids.size(); ++k) {
    lua_pushinteger(L, ids[k]);
    lua_rawseti(L, -2, static_cast<int>(k) + 1);
  }
}

// core.tokenizer(path)
StatusOr<int> Open(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "Tokenizer: path"));
  auto handle = std::make_shared<TokenizerHandle>();
  StatusOr<std::shared_ptr<const Tokenizer>> opened = Tokenizer::Open(path);
  if (!opened.ok()) return Annotate(opened.status(), "Tokenizer");
  handle->tokenizer = *std::move(opened);
  PushObject<std::shared_ptr<TokenizerHandle>>(L, std::move(handle));
  return 1;
}

// core.tokenizer_of_json(text): of the text of a tokenizer.json
StatusOr<int> OfJson(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const absl::string_view json, ReadText(L, 1, "Tokenizer: json"));
  ASSIGN_OR_RETURN(text::TokenizerParts parts, text::ReadTokenizerJson(json));
  auto handle = std::make_shared<TokenizerHandle>();
  ASSIGN_OR_RETURN(handle->tokenizer, Tokenizer::Make(std::move(parts)));
  PushObject<std::shared_ptr<TokenizerHandle>>(L, std::move(handle));
  return 1;
}

// The strings of the list at `index`.
StatusOr<std::vector<absl::string_view>> ReadTexts(lua_State* L, int index, const std::string& what) {
  std::vector<absl::string_view> texts;
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    // The table keeps the string.
    ASSIGN_OR_RETURN(const absl::string_view text, ReadText(L, -1, absl::StrCat(what, "[", i, "]")));
    texts.push_back(text);
    lua_pop(L, 1);
  }
  return texts;
}

// core.tokenizer_files(path): the files that core.tokenizer would read; empty: there is none
StatusOr<int> FilesOf(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "tokenizer_files: path"));
  lua_newtable(L);
  int n = 0;
  for (const std::string& file : Tokenizer::FilesAt(path)) {
    PushString(L, file);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.train_tokenizer(kind, texts, vocab_size, special, lowercase): the text of a tokenizer.json
StatusOr<int> Train(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string kind, ReadString(L, 1, "Tokenizer.train: kind"));
  ASSIGN_OR_RETURN(const auto texts, ReadTexts(L, 2, "Tokenizer.train: texts"));
  ASSIGN_OR_RETURN(const auto special, ReadTexts(L, 4, "Tokenizer.train: special"));
  text::TrainOptions options;
  options.word_piece = kind == "wordpiece";
  ASSIGN_OR_RETURN(options.vocab_size, ReadInt(L, 3, "Tokenizer.train: vocab_size"));
  for (const absl::string_view token : special) options.special.emplace_back(token);
  options.lowercase = lua_toboolean(L, 5) != 0;
  const StatusOr<std::string> json = text::TrainOnTexts(texts, options);
  if (!json.ok()) return Annotate(json.status(), "Tokenizer.train");
  PushString(L, *json);
  return 1;
}

// core.read_text(path): the text of a file, which may be packed by gzip. DATA_LOSS: it is not UTF-8.
StatusOr<int> ReadTextFile(lua_State* L, Session&) {
  constexpr int64_t kMostBytes = int64_t{1} << 31;
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "read: path"));
  std::vector<uint8_t> bytes;
  RETURN_IF_ERROR(WithExitCode(data::ReadFileInflated(path, kMostBytes, &bytes), kExitData));
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t wrong = text::FindInvalidUtf8(text);
  if (wrong != absl::string_view::npos) {
    return WithExitCode(absl::DataLossError(absl::StrCat(path, ": not UTF-8 at byte ", wrong, " (0x",
                                                         absl::Hex(bytes[wrong], absl::kZeroPad2), ")")),
                        kExitData);
  }
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

// core.invalid_utf8(text, from): the place, from 1, of the first byte from there on that is not UTF-8; nil: there is
// none.
StatusOr<int> InvalidUtf8(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(absl::string_view text, ReadText(L, 1, "invalid_utf8: text"));
  ASSIGN_OR_RETURN(const int64_t from, ReadInt(L, 2, "invalid_utf8: from"));
  const size_t skipped = std::min(text.size(), static_cast<size_t>(from - 1));
  const size_t wrong = text::FindInvalidUtf8(text.substr(skipped));
  if (wrong == absl::string_view::npos)
    lua_pushnil(L);
  else
    lua_pushinteger(L, static_cast<lua_Integer>(skipped + wrong + 1));
  return 1;
}

// core.tokenizer_encode(tokenizer, text, pair or nil, add_special_tokens, parse_special_tokens): ids, and of a pair
// types
StatusOr<int> Encode(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  ASSIGN_OR_RETURN(const absl::string_view first, ReadText(L, 2, "encode: text"));
  absl::string_view second;
  if (!lua_isnil(L, 3)) {
    ASSIGN_OR_RETURN(second, ReadText(L, 3, "encode: pair"));
  }
  text::EncodeOptions options;
  options.add_special_tokens = lua_toboolean(L, 4) != 0;
  options.parse_special_tokens = lua_toboolean(L, 5) != 0;
  auto encoding = handle->tokenizer->EncodePair(first, lua_isnil(L, 3) ? nullptr : &second, options, &handle->cache);
  if (!encoding.ok()) return Annotate(encoding.status(), "encode");
  PushIds(L, encoding->ids);
  if (lua_isnil(L, 3)) return 1;
  PushIds(L, encoding->types);
  return 2;
}

// An id of the list at `index`, or of a tensor's elements.
StatusOr<std::vector<int32_t>> ReadIds(lua_State* L, int index, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  if (const Tensor* tensor = ToObject<Tensor>(L, index); tensor != nullptr) {
    const int64_t n = tensor->type.shape.size() == 1 ? tensor->type.bytes() / 4 : -1;
    if (tensor->type.dtype != DType::kI32 || n < 0)
      return absl::InvalidArgumentError(absl::StrCat("decode: expected int32 ids [n], got ", ToString(tensor->type)));
    const auto* data = static_cast<const int32_t*>(tensor->data.get());
    return std::vector<int32_t>(data, data + n);
  }
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("decode: expected a list of ids, got ", Describe(L, index)));
  const int n = static_cast<int>(lua_objlen(L, index));
  for (int k = 1; k <= n; ++k) {
    lua_rawgeti(L, index, k);
    ASSIGN_OR_RETURN(const int64_t id, ReadInt(L, -1, absl::StrCat("decode: ids[", k, "]")));
    lua_pop(L, 1);
    if (id < 0 || id >= tokenizer.vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("decode: ids[", k, "]: expected an id in 0..", tokenizer.vocab_size() - 1, ", got ", id));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// core.tokenizer_decode(tokenizer, ids, skip_special_tokens)
StatusOr<int> Decode(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(L, 2, *handle->tokenizer));
  auto decoded = handle->tokenizer->Decode(ids, lua_toboolean(L, 3) != 0);
  if (!decoded.ok()) return Annotate(decoded.status(), "decode");
  PushString(L, *decoded);
  return 1;
}

// core.tokenizer_info(tokenizer): {vocab_size, special_tokens, roles, chat_template, files}
StatusOr<int> Info(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  const Tokenizer& tokenizer = *handle->tokenizer;
  lua_newtable(L);
  lua_pushnumber(L, static_cast<double>(tokenizer.vocab_size()));
  lua_setfield(L, -2, "vocab_size");
  lua_newtable(L);
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    if (!token.special) continue;
    PushString(L, token.content);
    lua_pushinteger(L, token.id);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "special_tokens");
  lua_newtable(L);
  for (const auto& [role, token] : tokenizer.parts().roles) {
    PushString(L, token);
    lua_setfield(L, -2, role.c_str());
  }
  lua_setfield(L, -2, "roles");
  PushString(L, tokenizer.parts().chat_template);
  lua_setfield(L, -2, "chat_template");
  lua_newtable(L);
  for (size_t k = 0; k < tokenizer.parts().files.size(); ++k) {
    PushString(L, tokenizer.parts().files[k]);
    lua_rawseti(L, -2, static_cast<int>(k) + 1);
  }
  lua_setfield(L, -2, "files");
  return 1;
}

// core.tokenizer_id(tokenizer, token): its id, or nil
StatusOr<int> IdOf(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  ASSIGN_OR_RETURN(const absl::string_view token, ReadText(L, 2, "id_of: token"));
  const int32_t id = handle->tokenizer->IdOf(token);
  if (id < 0)
    lua_pushnil(L);
  else
    lua_pushinteger(L, id);
  return 1;
}

// core.tokenizer_token(tokenizer, id): the token as the vocabulary has it, or nil
StatusOr<int> TokenOf(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  ASSIGN_OR_RETURN(const int64_t id, ReadInt(L, 2, "token_of: id"));
  const std::string* token = handle->tokenizer->TokenOf(id);
  if (token == nullptr)
    lua_pushnil(L);
  else
    PushString(L, *token);
  return 1;
}

// core.decode_stream(tokenizer, skip_special_tokens)
StatusOr<int> Stream(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(TokenizerHandle* const handle, ReadTokenizer(L, 1));
  PushObject(L, std::make_shared<DecodeStream>(handle->tokenizer, lua_toboolean(L, 2) != 0));
  return 1;
}

// core.decode_push(stream, id): the characters that are complete; without an id: the rest
StatusOr<int> Push(lua_State* L, Session&) {
  auto* stream = ToObject<std::shared_ptr<DecodeStream>>(L, 1);
  if (stream == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected a DecodeStream, got ", Describe(L, 1)));
  if (lua_isnil(L, 2)) {
    PushString(L, (*stream)->Finish());
    return 1;
  }
  ASSIGN_OR_RETURN(const int64_t id, ReadInt(L, 2, "push: id"));
  auto more = (*stream)->Push(id);
  if (!more.ok()) return Annotate(more.status(), "push: id");
  PushString(L, *more);
  return 1;
}

}  // namespace

void OpenTokenizers(lua_State* L) {
  NewKind<std::shared_ptr<TokenizerHandle>>(L);
  NewKind<std::shared_ptr<DecodeStream>>(L);
  lua_pop(L, 2);
  SetFunctions(L, {{"tokenizer", Entry<Open>},
                   {"tokenizer_of_json", Entry<OfJson>},
                   {"tokenizer_files", Entry<FilesOf>},
                   {"train_tokenizer", Entry<Train>},
                   {"read_text", Entry<ReadTextFile>},
                   {"invalid_utf8", Entry<InvalidUtf8>},
                   {"tokenizer_encode", Entry<Encode>},
                   {"tokenizer_decode", Entry<Decode>},
                   {"tokenizer_info", Entry<Info>},
                   {"tokenizer_id", Entry<IdOf>},
                   {"tokenizer_token", Entry<TokenOf>},
                   {"decode_stream", Entry<Stream>},
                   {"decode_push", Entry<Push>}});
}

}  // namespace mslua
