package gosdk

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// Protect is mcp.Protect for a server whose callers the SDK's authentication verifies: put
// auth.RequireBearerToken around it.
//
//	handler, err := gosdk.Protect(sdk.NewStreamableHTTPHandler(getServer, nil), gate, mcp.Options{})
//	http.Handle("/mcp", auth.RequireBearerToken(verifier, nil)(handler))
//
// In sessions (all but StreamableHTTPOptions.Stateless), mcp.ReportUsage needs Middleware.Receiving on the
// same gate as well, or UsageMeta: else it counts nothing.
func Protect(next http.Handler, gate *callgate.Gate, options mcp.Options) (*mcp.Handler, error) {
	if options.Verified == nil {
		options.Verified = CallerOfRequest
	}
	return mcp.Protect(next, gate, options)
}

// CallerOfRequest is the caller whose token auth.RequireBearerToken has verified; nil where there is none.
func CallerOfRequest(r *http.Request) *mcp.Caller {
	return callerOfToken(auth.TokenInfoFromContext(r.Context()))
}

// callerOf is the caller whose token the SDK has verified. The context of a message that came over HTTP
// may be that of another one.
func callerOf(ctx context.Context, request sdk.Request) *mcp.Caller {
	if extra := request.GetExtra(); extra != nil && extra.Header != nil {
		return callerOfToken(extra.TokenInfo)
	}
	return callerOfToken(auth.TokenInfoFromContext(ctx))
}

func callerOfToken(token *auth.TokenInfo) *mcp.Caller {
	identity := TokenIdentity(token)
	if identity == "" {
		return nil
	}
	return &mcp.Caller{Policy: mcp.Authenticated, Identity: identity}
}

// TokenIdentity is the principal of a verified token; empty where there is no token, or it names none.
//
// A token with a subject (UserID, or "sub" among its Extra) is charged to that subject, whichever client
// it came through: else a user who registers one more client would have one more bucket. A subject is
// unique per issuer only, so that the issuer ("iss") is part of it. A token without a subject is charged
// to its client ("client_id").
func TokenIdentity(token *auth.TokenInfo) string {
	if token == nil {
		return ""
	}
	kind, principal := "subject", token.UserID
	if principal == "" {
		principal = claim(token, "sub")
	}
	if principal == "" {
		kind, principal = "client", claim(token, "client_id")
	}
	if principal == "" {
		return ""
	}
	issuer := "None"
	if name := claim(token, "iss"); name != "" {
		issuer = quoted(name)
	}
	// Quoted, the parts stay apart: no client can be spelled to equal somebody's subject.
	return fmt.Sprintf("token:(%s, %s, %s)", issuer, quoted(kind), quoted(principal))
}

func claim(token *auth.TokenInfo, name string) string {
	value, _ := token.Extra[name].(string)
	return value
}

func quoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
