#include "rendezvous/tls/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/provider.h>

#include <random>

#include "rendezvous/tls/testing.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

template <class Write>
std::string Bytes(Write write) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  write(memory.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

class CredentialFile : public ::testing::Test {
 protected:
  StatusOr<Credentials> Read(const std::string& bytes, const std::string& password, const std::string& key = "") {
    WriteTo(files_ / "x", bytes);
    return LoadCredentials({files_ / "x", key, password, "server"});
  }
  const TestCertificates files_;
  const Credentials server_ = files_.Load("server.p12");
};

TEST_F(CredentialFile, Pkcs12WithItsChain) {
  EXPECT_EQ(server_.chain.size(), 1u);
  const std::string bytes = ContentsOf(files_ / "server.p12");
  EXPECT_TRUE(Read(bytes, files_.password()).ok());
  EXPECT_THAT(std::string(Read(bytes, "other").status().message()),
              HasSubstr("the password is wrong (server_password"));
  EXPECT_THAT(std::string(Read(bytes, "").status().message()), HasSubstr("no password is given"));
}

// As OpenSSL 1 writes it: RC2 with 40 bits, which is not in the default provider of OpenSSL 3.
TEST_F(CredentialFile, Pkcs12OfOldCiphers) {
  OSSL_LIB_CTX* const old = OSSL_LIB_CTX_new();
  OSSL_PROVIDER* const default_provider = OSSL_PROVIDER_load(old, "default");
  OSSL_PROVIDER* const legacy = OSSL_PROVIDER_load(old, "legacy");
  ASSERT_NE(legacy, nullptr);
  OSSL_LIB_CTX* const before = OSSL_LIB_CTX_set0_default(old);
  const Pkcs12Ptr file(PKCS12_create("word", "", server_.key.get(), server_.certificate.get(), nullptr,
                                     NID_pbe_WithSHA1And3_Key_TripleDES_CBC, NID_pbe_WithSHA1And40BitRC2_CBC, 0, 0, 0));
  OSSL_LIB_CTX_set0_default(before);
  ASSERT_NE(file, nullptr);
  const auto read = Read(Bytes([&](BIO* bio) { i2d_PKCS12_bio(bio, file.get()); }), "word");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(X509_cmp(read->certificate.get(), server_.certificate.get()), 0);
  EXPECT_EQ(EVP_PKEY_eq(read->key.get(), server_.key.get()), 1);
  OSSL_PROVIDER_unload(legacy);
  OSSL_PROVIDER_unload(default_provider);
  OSSL_LIB_CTX_free(old);
}

TEST_F(CredentialFile, PemWithTheKeyAndWithout) {
  const std::string certificate = Bytes([&](BIO* bio) { PEM_write_bio_X509(bio, server_.certificate.get()); });
  const std::string key =
      Bytes([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, server_.key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  char word[] = "word";
  const std::string locked = Bytes([&](BIO* bio) {
    PEM_write_bio_PrivateKey(bio, server_.key.get(), EVP_aes_128_cbc(), reinterpret_cast<unsigned char*>(word), 4,
                             nullptr, nullptr);
  });
  EXPECT_TRUE(Read(certificate + key, "").ok());
  EXPECT_TRUE(Read(key + certificate, "").ok());
  EXPECT_TRUE(Read(certificate + locked, "word").ok());
  EXPECT_THAT(std::string(Read(certificate + locked, "other").status().message()), HasSubstr("the password is wrong"));
  EXPECT_THAT(std::string(Read(certificate + locked, "").status().message()), HasSubstr("no password is given"));
  EXPECT_THAT(std::string(Read(certificate, "").status().message()), HasSubstr("it holds no key (server_key_path)"));
  WriteTo(files_ / "key", key);
  EXPECT_TRUE(Read(certificate, "", files_ / "key").ok());
}

TEST_F(CredentialFile, DamagedFilesAreAnErrorOrTheSame) {
  const std::string bytes = ContentsOf(files_ / "client.p12");
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    if (i % 4 == 0) damaged.resize(random() % damaged.size());
    refused += Read(damaged, files_.password()).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 190);
}

}  // namespace
}  // namespace mslua
