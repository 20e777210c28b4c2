#include "runtime/report/server/connection.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

HttpRequest get(const std::string& path, const std::string& host = "127.0.0.1:80") {
  HttpRequest request;
  const std::string text = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
  EXPECT_EQ(parse_request(text, request), RequestState::kComplete);
  return request;
}

std::shared_ptr<const HttpAnswer> one_page(const std::string& path) {
  if (path != "/") return nullptr;
  return std::make_shared<const HttpAnswer>(
      HttpAnswer{.etag = "\"7\"", .body = std::make_shared<const std::string>("hello")});
}

TEST(Connection, Requests) {
  const HttpRequest request = get("/data.json?x=1#y");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/data.json");
  EXPECT_EQ(request.host, "127.0.0.1:80");
}

TEST(Connection, MalformedRequests) {
  HttpRequest request;
  EXPECT_EQ(parse_request("GET / HTTP/1.1\r\nHost: x\r\n", request), RequestState::kIncomplete);
  EXPECT_EQ(parse_request("", request), RequestState::kIncomplete);
  for (const std::string text :
       {"\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET x HTTP/1.1\r\n\r\n",
        "G@T / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n", "GET / HTTP/1.1 \r\n\r\n",
        "\x16\x03\x01\x02\x01\r\n\r\n"}) {
    EXPECT_EQ(parse_request(text, request), RequestState::kMalformed) << text;
  }
  EXPECT_EQ(parse_request(std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 26), request),
            RequestState::kMalformed);
  EXPECT_EQ(parse_request(std::string(kMostRequestBytes + 1, 'x'), request),
            RequestState::kTooLong);
  EXPECT_EQ(parse_request(std::string(kMostRequestBytes + 1, 'x') + "\r\n\r\n", request),
            RequestState::kTooLong);
}

TEST(Connection, Answers) {
  EXPECT_EQ(*answer_to(get("/"), one_page).body, "hello");
  EXPECT_EQ(answer_to(get("/etc/passwd"), one_page).status, 404);
  EXPECT_EQ(answer_to(get("/../x"), one_page).status, 404);
  HttpRequest post = get("/");
  post.method = "POST";
  EXPECT_EQ(answer_to(post, one_page).status, 405);
  HttpRequest known = get("/");
  known.if_none_match = "\"7\"";
  EXPECT_EQ(answer_to(known, one_page).status, 304);
  // A page of another site that resolves its name to 127.0.0.1 reads nothing.
  EXPECT_EQ(answer_to(get("/", "evil.example:80"), one_page).status, 403);
  EXPECT_EQ(answer_to(get("/", ""), one_page).status, 403);
  EXPECT_EQ(answer_to(get("/", "LocalHost"), one_page).status, 200);
}

TEST(Connection, Heads) {
  const std::string head = answer_head(*one_page("/"));
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_NE(head.find("ETag: \"7\"\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

}  // namespace
}  // namespace sluice
