#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/job_secret.hpp"
#include "parallel/comm/signed_store.hpp"

namespace sluice {
namespace {

// The length of the key distinguishes "ab" + "c" from "a" + "bc".
Digest code_of(const std::string& secret, const std::string& key,
               std::span<const std::uint8_t> value) {
  std::string message = std::to_string(key.size()) + ":" + key;
  message.append(value.begin(), value.end());
  return hmac_sha256(secret, message);
}

}  // namespace

SignedStore::SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret)
    : store_(std::move(store)), secret_(std::move(secret)) {}

SignedStore::Bytes SignedStore::with_code(const std::string& key, const Bytes& value) const {
  const Digest code = code_of(secret_, key, value);
  Bytes whole = value;
  whole.insert(whole.end(), code.begin(), code.end());
  return whole;
}

SignedStore::Bytes SignedStore::without_code(const std::string& key, Bytes value) const {
  constexpr std::size_t kCode = std::tuple_size_v<Digest>;
  const std::size_t bytes = value.size() < kCode ? 0 : value.size() - kCode;
  const std::span<const std::uint8_t> whole(value);
  if (value.size() < kCode ||
      !same_code(whole.subspan(bytes), code_of(secret_, key, whole.first(bytes)))) {
    throw CommError("the entry " + key +
                        " of the rendezvous was not written with this job's secret; give all "
                        "ranks of the job the same " +
                        kJobSecretVariable + ", or find out who else reaches the port",
                    /*secondary=*/false);
  }
  value.resize(bytes);
  return value;
}

c10::intrusive_ptr<c10d::Store> SignedStore::clone() {
  return c10::make_intrusive<SignedStore>(store_->clone(), secret_);
}

void SignedStore::set(const std::string& key, const Bytes& value) {
  store_->set(key, with_code(key, value));
}

SignedStore::Bytes SignedStore::get(const std::string& key) {
  return without_code(key, store_->get(key));
}

SignedStore::Bytes SignedStore::compareSet(const std::string& key, const Bytes& expected,
                                           const Bytes& desired) {
  // An empty `expected` means that the key must not exist, and carries no code.
  return without_code(
      key, store_->compareSet(key, expected.empty() ? expected : with_code(key, expected),
                              with_code(key, desired)));
}

std::int64_t SignedStore::add(const std::string& key, std::int64_t value) {
  return store_->add(key, value);
}
bool SignedStore::deleteKey(const std::string& key) { return store_->deleteKey(key); }
bool SignedStore::check(const std::vector<std::string>& keys) { return store_->check(keys); }
std::int64_t SignedStore::getNumKeys() { return store_->getNumKeys(); }
void SignedStore::wait(const std::vector<std::string>& keys) { store_->wait(keys); }
void SignedStore::wait(const std::vector<std::string>& keys, const Milliseconds& timeout) {
  store_->wait(keys, timeout);
}
const SignedStore::Milliseconds& SignedStore::getTimeout() const noexcept {
  return store_->getTimeout();
}
void SignedStore::setTimeout(const Milliseconds& timeout) { store_->setTimeout(timeout); }

}  // namespace sluice
