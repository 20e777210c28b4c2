// One request and its answer over HTTP/1.1, without a socket. The connection closes after it.
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace sluice {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string etag = {};  // empty: none
  std::shared_ptr<const std::string> body = {};
};

struct HttpRequest {
  std::string method, path;  // the path without what follows "?"
  std::string host;          // empty: the request names none
  std::string if_none_match;
};

inline constexpr std::size_t kMostRequestBytes = 8192;

// What is known of a request from the bytes that have come.
enum class RequestState { kIncomplete, kComplete, kMalformed, kTooLong };
// Sets `request` if it is complete. A body is not read. Pure.
[[nodiscard]] RequestState parse_request(std::string_view bytes, HttpRequest& request);

// The header of an answer, with a blank line behind it. Pure.
[[nodiscard]] std::string answer_head(const HttpAnswer& answer);

// The answer to a request for one of the server's pages, from `page(path)`: null where the path has
// none. Refuses methods other than GET and HEAD, and hosts that are not this machine: a page of
// another site must not read the report by a name that resolves to 127.0.0.1. Pure but for `page`.
using PageOf = std::function<std::shared_ptr<const HttpAnswer>(const std::string& path)>;
[[nodiscard]] HttpAnswer answer_to(const HttpRequest& request, const PageOf& page);

}  // namespace sluice
