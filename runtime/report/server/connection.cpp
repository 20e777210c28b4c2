#include "runtime/report/server/connection.hpp"

#include <algorithm>
#include <cctype>

#include "runtime/report/blanks.hpp"

namespace sluice {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
}

// METHOD PATH HTTP/1.x
bool parse_first_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' ');
  if (first == std::string_view::npos) return false;
  const std::size_t second = line.find(' ', first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  if (!is_token(line.substr(0, first)) || !target.starts_with('/')) return false;
  request.method = line.substr(0, first);
  request.path = target.substr(0, target.find_first_of("?#"));
  return true;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

HttpAnswer refusal(int status, const std::string& text) {
  return {.status = status, .body = std::make_shared<const std::string>(text + "\n")};
}

bool is_this_machine(std::string_view host) {
  const std::size_t port = host.rfind(':');
  const std::string name = lower(host.substr(0, port));
  return name == "127.0.0.1" || name == "localhost";
}

}  // namespace

RequestState parse_request(std::string_view bytes, HttpRequest& request) {
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos || end > kMostRequestBytes) {
    return bytes.size() > kMostRequestBytes ? RequestState::kTooLong : RequestState::kIncomplete;
  }
  std::string_view head = bytes.substr(0, end);
  if (head.find('\0') != std::string_view::npos) return RequestState::kMalformed;
  request = {};
  for (bool first = true; first || !head.empty(); first = false) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    if (first) {
      if (!parse_first_line(line, request)) return RequestState::kMalformed;
      continue;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return RequestState::kMalformed;
    const std::string name = lower(line.substr(0, colon));
    if (name == "host") request.host = without_blanks(line.substr(colon + 1));
    if (name == "if-none-match") request.if_none_match = without_blanks(line.substr(colon + 1));
  }
  return RequestState::kComplete;
}

std::string answer_head(const HttpAnswer& answer) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " ";
  head += reason_of(answer.status);
  head += "\r\nConnection: close\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff";
  head += "\r\nX-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin";
  if (answer.status == 405) head += "\r\nAllow: GET, HEAD";
  if (!answer.etag.empty()) head += "\r\nETag: " + answer.etag;
  if (answer.status != 304) {
    head += "\r\nContent-Type: " + answer.type +
            "\r\nContent-Length: " + std::to_string(answer.body ? answer.body->size() : 0);
  }
  return head + "\r\n\r\n";
}

HttpAnswer answer_to(const HttpRequest& request, const PageOf& page) {
  if (!is_this_machine(request.host)) {
    return refusal(403, "this server answers to 127.0.0.1 and localhost alone");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return refusal(405, "only GET and HEAD");
  }
  const std::shared_ptr<const HttpAnswer> found = page(request.path);
  if (!found) return refusal(404, "only / and /data.json are here");
  if (!found->etag.empty() && request.if_none_match == found->etag) {
    return {.status = 304, .etag = found->etag};
  }
  return *found;
}

}  // namespace sluice
