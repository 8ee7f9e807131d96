package mcp

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"callgate.dev/callgate"
)

const (
	unauthorized = -31001
	keyPlaces    = "'Authorization: Bearer KEY', 'X-API-Key: KEY' or '?key=KEY'"
)

// Require demands a key of every request: 401 without a known one.
//
// What it finds out is what the middlewares inside go by: the user is charged under the policy
// Authenticated. The key is taken out of the query string, so that neither the handler nor its access
// log gets to see it there.
func (k *APIKeys) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, key := withoutKey(r)
		if key == "" {
			noKey("An API key is needed", `Bearer realm="mcp"`).ServeHTTP(w, r)
			return
		}
		user, isKnown := k.UserOf(key)
		if !isKnown {
			k.wrongKey().ServeHTTP(w, r)
			return
		}
		caller := Caller{Policy: Authenticated, Identity: user}
		next.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), caller)))
	})
}

// wrongKey counts an attempt with an unknown key, and answers it.
func (k *APIKeys) wrongKey() *response {
	var d callgate.Decision
	if err := k.failures.TryAdmit(&d, failedAttempts, &callgate.Call{}); err != nil {
		slog.Error("failed attempts can't be counted: " + nature(err))
	} else if !d.Admitted {
		answer := newResponse(http.StatusTooManyRequests, nullID, &JSONRPCError{
			Code:    DefaultErrorCode,
			Message: "Too many requests came with an unknown API key. Try again later.",
			Data:    refusalError(&d, 1, DefaultErrorCode).Data,
		})
		answer.setRetryAfter(&d)
		return answer
	}
	return noKey("The API key is not known", `Bearer realm="mcp", error="invalid_token"`)
}

func noKey(what, challenge string) *response {
	answer := newResponse(http.StatusUnauthorized, nullID, &JSONRPCError{
		Code:    unauthorized,
		Message: what + ": send it as " + keyPlaces + ".",
	})
	answer.header.Set("WWW-Authenticate", challenge)
	return answer
}

// withoutKey gives the request without any key in its query, and the key that was presented; empty where
// there is none.
func withoutKey(r *http.Request) (*http.Request, string) {
	inQuery, rest, has := cutKey(r.URL.RawQuery)
	if has {
		r = r.WithContext(r.Context())
		address := *r.URL
		address.RawQuery = rest
		r.URL = &address
		if path, _, hasQuery := strings.Cut(r.RequestURI, "?"); hasQuery {
			r.RequestURI = strings.TrimSuffix(path+"?"+rest, "?")
		}
	}
	if token := bearerToken(r.Header); token != "" {
		return r, token
	}
	if key := strings.TrimSpace(r.Header.Get("X-API-Key")); key != "" {
		return r, key
	}
	return r, inQuery
}

// cutKey is the value of key in a query string (the first, where there are more), and the rest.
func cutKey(query string) (key, rest string, has bool) {
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if unescaped(name) != "key" {
			others = append(others, pair)
			continue
		}
		has = true
		if key == "" {
			key = unescaped(value)
		}
	}
	return key, strings.Join(others, "&"), has
}

// unescaped is a part of a query string without its escapes; as it is, where they are none.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
