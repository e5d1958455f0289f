// Owners of OpenSSL's objects, and its errors as text.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace mslua {

template <auto kFree>
struct OpensslDeleter {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpensslDeleter<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslDeleter<EVP_PKEY_free>>;
using Pkcs12Ptr = std::unique_ptr<PKCS12, OpensslDeleter<PKCS12_free>>;
using CertificatePtr = std::unique_ptr<X509, OpensslDeleter<X509_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, OpensslDeleter<X509_CRL_free>>;
using StorePtr = std::unique_ptr<X509_STORE, OpensslDeleter<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, OpensslDeleter<X509_STORE_CTX_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, OpensslDeleter<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslDeleter<SSL_free>>;

// Memory as OpenSSL reads it; `bytes` outlives it.
BioPtr ReaderOf(absl::string_view bytes);
// The oldest error of this thread, and none is left.
std::string TakeOpensslError();
// "2026-11-22 23:40 UTC".
std::string DateOf(const ASN1_TIME* time);
// "CN = worker, O = example".
std::string NameText(const X509_NAME* name);

}  // namespace mslua
