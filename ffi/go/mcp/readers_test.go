package mcp

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// readAsSDKs is how many calls the most generous reader of the SDKs finds in a body.
func readAsSDKs(body []byte) int {
	return max(readAsGoSDK(body), readAsMCPGo(body))
}

// readAsMCPGo: encoding/json into a struct, which takes any capitals and the last of several; no batches.
func readAsMCPGo(body []byte) int {
	var message struct {
		Method string `json:"method"`
	}
	if json.Unmarshal(body, &message) == nil && message.Method == MeteredMethod {
		return 1
	}
	return 0
}

// readAsGoSDK: the official SDK's own reader, each of a batch by itself.
func readAsGoSDK(body []byte) int {
	texts := []json.RawMessage{body}
	var several []json.RawMessage
	if json.Unmarshal(body, &several) == nil {
		texts = several
	}
	found := 0
	for _, text := range texts {
		message, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			continue
		}
		if request, ok := message.(*jsonrpc.Request); ok && request.Method == MeteredMethod {
			found++
		}
	}
	return found
}
