package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"callgate.dev/callgate"
)

// APIKeys are the known keys, and the limit on attempts with unknown ones: they say who calls, where a
// server has nothing better to tell it by.
//
//	keys, err := mcp.NewAPIKeys(map[string]string{"k-3f9c…": "ann", "k-71aa…": "ben"})
//	handler, err := mcp.Protect(server, gate, mcp.Options{APIKeys: keys})
//
// A key is taken from Authorization: Bearer KEY, from X-API-Key: KEY or from ?key=KEY: the first of
// these that is there decides. It is compared with all known keys in constant time, as a keyed digest:
// keys themselves are kept nowhere, logged nowhere, and never reach the gate's table, which knows
// callers by their user. Several keys may have one user, who has one allowance.
type APIKeys struct {
	secret   []byte
	users    []keyUser
	failures *callgate.Gate
}

type keyUser struct {
	digest []byte
	user   string
}

// NoAPIKeys, as an option, demands none.
var NoAPIKeys = &APIKeys{}

// DefaultFailures is how many wrong keys are answered with a 401, by all clients together.
var DefaultFailures = callgate.RateLimit{Count: 10, Per: time.Minute, Burst: 20}

const failedAttempts = "failed attempts"

// NewAPIKeys takes the user of each key. None makes every key unknown.
//
// failures is the limit on failed attempts, by default DefaultFailures. It is one for all clients, so
// that nobody has more attempts by changing keys or addresses; over it they get 429 instead of 401. A
// known key always passes, or else anybody could lock everybody out.
//
// Fails where a key or a user is empty, and with a *callgate.ConfigError where failures is out of range.
func NewAPIKeys(users map[string]string, failures ...callgate.RateLimit) (*APIKeys, error) {
	limit := DefaultFailures
	if len(failures) > 0 {
		limit = failures[len(failures)-1]
	}
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{failedAttempts: limit},
		Policies: map[string]callgate.Policy{failedAttempts: {{Limit: failedAttempts, Scope: callgate.ScopeShared}}},
		Capacity: 1,
	})
	if err != nil {
		return nil, err
	}
	keys := &APIKeys{secret: make([]byte, sha256.Size), failures: gate}
	if _, err := rand.Read(keys.secret); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(users)) {
		if key == "" || users[key] == "" {
			return nil, errors.New("callgate: an API key and its user can't be empty")
		}
		keys.users = append(keys.users, keyUser{keys.digest(key), users[key]})
	}
	return keys, nil
}

// ParseAPIKeys takes the keys of key:user,key2:user2; what is no such pair is left out, with a warning
// to slog.Default(). A key ends at the first colon. Blanks around keys and users do not count. failures
// is that of [NewAPIKeys].
func ParseAPIKeys(text string, failures ...callgate.RateLimit) (*APIKeys, error) {
	users := map[string]string{}
	for n, entry := range strings.Split(text, ",") {
		key, user, _ := strings.Cut(entry, ":")
		key, user = strings.TrimSpace(key), strings.TrimSpace(user)
		// Neither the key nor the entry is ever quoted: logs are no place for secrets.
		switch _, isKnown := users[key]; {
		case isKnown && user != "":
			slog.Warn(fmt.Sprintf("%s: the key of entry %d is there twice; left out", envKeys, n+1))
		case key != "" && user != "":
			users[key] = user
		case strings.TrimSpace(entry) != "":
			slog.Warn(fmt.Sprintf("%s: entry %d is not key:user; it is left out", envKeys, n+1))
		}
	}
	return NewAPIKeys(users, failures...)
}

// APIKeysFromEnv takes the keys of MCP_API_KEYS; nil where no key is to be demanded.
//
// MCP_AUTH_ENABLED says whether one is: true or false (or 1 and 0, yes and no, on and off). Unset, keys
// are demanded where there are any. With it, and without any valid key, nobody gets in. environ may be
// nil, see [Environ].
func APIKeysFromEnv(environ Environ) (*APIKeys, error) {
	text, _ := environ.lookup(envKeys)
	if !isAuthEnabled(environ, strings.TrimSpace(text) != "") {
		return nil, nil
	}
	keys, err := ParseAPIKeys(text)
	if err != nil {
		return nil, err
	}
	if len(keys.users) == 0 {
		slog.Warn(envKeys + " has no valid key: every request is refused")
	}
	slog.Info(fmt.Sprintf("API keys are demanded; %d are known", len(keys.users)))
	return keys, nil
}

// UserOf is whose key it is, and false where it is nobody's. Takes the same time for every key.
func (k *APIKeys) UserOf(key string) (user string, isKnown bool) {
	digest := k.digest(key)
	for _, known := range k.users {
		if hmac.Equal(known.digest, digest) {
			user, isKnown = known.user, true
		}
	}
	return user, isKnown
}

// String says how many there are, and nothing else of them.
func (k *APIKeys) String() string { return fmt.Sprintf("<mcp.APIKeys of %d keys>", len(k.users)) }

// GoString is String: no verb of fmt tells more.
func (k *APIKeys) GoString() string { return k.String() }

func (k *APIKeys) digest(key string) []byte {
	hash := hmac.New(sha256.New, k.secret)
	hash.Write([]byte(key))
	return hash.Sum(nil)
}
